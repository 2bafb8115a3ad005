"""Pictures as PNG, drawn by resvg (the extra `png`): no browser, no system library."""

from functools import cache

from mlcd.errors import BadInput
from mlcd.extras import require
from mlcd.report.palette import THEMES
from mlcd.report.picture import Picture

SCALE = 2
"""Pixels of a PNG for each unit of a picture: sharp on dense screens and on paper."""
FAMILIES = ("Helvetica Neue", "Arial", "Segoe UI", "Roboto", "Liberation Sans", "Noto Sans", "DejaVu Sans", "FreeSans")
"""Fonts for texts, the first that this machine has: resvg knows no generic one."""


def png(picture: Picture, theme: str = "light") -> bytes:
    """The picture in the colours of `light` or `dark`, with a font of this machine.

    Raises MissingExtra without resvg, BadInput on a machine without any of FAMILIES: texts would be missing.
    """
    require("png", "`mlcd report --format png`")
    from resvg_py import svg_to_bytes  # noqa: PLC0415 - an optional dependency, imported where it is used

    family = _family()
    if not family:
        raise BadInput(
            f"--format png: this machine has no font for texts; any of {', '.join(FAMILIES)} does"
            " (Debian: apt install fonts-dejavu-core)"
        )
    paper = THEMES[theme]["paper"]
    drawn = svg_to_bytes(svg_string=picture.in_theme(theme), zoom=SCALE, background=paper, sans_serif_family=family)
    return bytes(drawn)


@cache
def _family() -> str:
    """The first of FAMILIES in which a text leaves a trace; "" if none does."""
    from resvg_py import svg_to_bytes  # noqa: PLC0415 - see `png`

    def probe(text: str) -> bytes:
        svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{text}</svg>'
        return bytes(svg_to_bytes(svg_string=svg))

    blank = probe("")
    shown = '<text x="2" y="16" font-family="{}" font-size="14">H</text>'
    return next((family for family in FAMILIES if probe(shown.format(family)) != blank), "")
