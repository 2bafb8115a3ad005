"""The colours: enough contrast in light and dark, and series that colour-blind readers can tell apart."""

import itertools
import math
import re

import pytest

from mlcd.report.page import stylesheet
from mlcd.report.palette import MARKS, SERIES, STYLE, TEXT, THEMES, themed_style
from mlcd.report.svg import Drawing, embedded, themed

LEAST_MARK, LEAST_TEXT = 3.0, 4.5
"""WCAG 2.2, success criteria 1.4.11 and 1.4.3."""
LEAST_DIFFERENCE = 8.0
"""In hundredths of OKLab's lightness: neighbours in the palette before this one were 0.7 apart for some readers."""

# Machado, Oliveira and Fernandes 2009, severity 1.0: how people without one kind of cones see linear RGB.
SEEN_BY = {
    "all": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def linear(colour: str) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio."""
    lights = sorted(sum(k * v for k, v in zip((0.2126, 0.7152, 0.0722), linear(c), strict=True)) for c in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def lab(rgb: list[float]) -> tuple[float, float, float]:
    """OKLab (Ottosson 2020)."""
    r, g, b = rgb
    cones = (
        0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b,
        0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b,
        0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b,
    )
    x, y, z = (math.copysign(abs(cone) ** (1 / 3), cone) for cone in cones)
    return (
        0.2104542553 * x + 0.7936177850 * y - 0.0040720468 * z,
        1.9779984951 * x - 2.4285922050 * y + 0.4505937099 * z,
        0.0259040371 * x + 0.7827717662 * y - 0.8086757660 * z,
    )


def difference(one: str, other: str, reader: str) -> float:
    def seen(colour: str) -> tuple[float, float, float]:
        rgb = linear(colour)
        return lab([sum(k * v for k, v in zip(row, rgb, strict=True)) for row in SEEN_BY[reader]])

    return 100 * math.dist(seen(one), seen(other))


def test_the_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("ground", ["paper", "ground"])
def test_marks_and_texts_stand_out(theme: str, ground: str) -> None:
    colours = THEMES[theme]
    for role in MARKS:
        assert contrast(colours[role], colours[ground]) >= LEAST_MARK, role
    for role in TEXT:
        assert contrast(colours[role], colours[ground]) >= LEAST_TEXT, role


@pytest.mark.parametrize("theme", THEMES)
def test_notes_and_tags_can_be_read(theme: str) -> None:
    colours = THEMES[theme]
    assert contrast(colours["note"], colours["note-ground"]) >= LEAST_TEXT
    assert contrast(colours["accent-ink"], colours["accent"]) >= LEAST_TEXT


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("reader", SEEN_BY)
def test_series_can_be_told_apart_by_every_reader(theme: str, reader: str) -> None:
    colours = [THEMES[theme][f"s{at}"] for at in range(SERIES)]
    for one, other in itertools.combinations(colours, 2):
        assert difference(one, other, reader) >= LEAST_DIFFERENCE, (one, other)


def test_both_themes_have_the_same_roles_and_every_rule_has_its_colour() -> None:
    assert THEMES["light"].keys() == THEMES["dark"].keys()
    used = set(re.findall(r"var\(--p-([a-z0-9-]+)\)", stylesheet() + STYLE))
    assert used <= THEMES["light"].keys()
    assert {"ink", "muted", "paper", "accent", "bad", "s0", "s5"} <= used


def test_a_page_follows_the_reader_a_class_and_paper() -> None:
    css = stylesheet()
    assert "@media (prefers-color-scheme:dark){.mlcd{" in css
    dark = css[css.index(".mlcd.mlcd-dark") :]
    assert THEMES["dark"]["paper"] in dark[: dark.index("}")]
    printed = css[css.index("@media print{") :]
    assert THEMES["light"]["paper"] in printed[: printed.index("}")]
    assert THEMES["dark"]["paper"] not in printed[: printed.index("}")]
    for rule in re.findall(r"^([^@{}/]+)\{", css, re.M):
        assert all(".mlcd" in part or part.startswith("[") for part in rule.split(",")), rule


def test_a_picture_alone_has_its_colours_and_one_on_a_page_the_page_s() -> None:
    drawing = Drawing(width=10, height=10, title="t", description="d")
    drawing.circle(1, 1, 1, "mark f-s0")
    svg = drawing.render()
    assert "prefers-color-scheme:dark" in svg
    assert "@media print" in svg
    assert "<style" not in embedded(svg)
    for theme, colours in THEMES.items():
        fixed = themed(svg, theme)
        assert "var(" not in fixed
        assert "@media" not in fixed
        assert f".f-s0{{fill:{colours['s0']}}}" in fixed
        assert themed_style(theme) in fixed
