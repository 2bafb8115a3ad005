"""The picture of a serving run: every load test, the limit, the front, the choice and its verification."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from tests.report_kind_samples import SERVERLESS, SERVING, serverless_run, serving_run

from mlcd.findings import shown
from mlcd.goal import Goal, Objective, Slo
from mlcd.kinds import kind_of
from mlcd.report.frame import legend
from mlcd.report.labels import text_width
from mlcd.report.page import NARROW, WIDE
from mlcd.report.serverless_picture import serverless_picture
from mlcd.report.serving_picture import serving_picture
from mlcd.report.svg import Drawing
from mlcd.units import Usd


def titles(svg: str) -> list[str]:
    return re.findall(r"<title>(.*?)</title>", svg, re.S)


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", SERVING)
def test_every_serving_run_has_a_picture(name: str, width: float) -> None:
    svg = serving_picture(shown(SERVING[name]()), width)
    ElementTree.fromstring(svg)
    assert f'viewBox="0 0 {width:.0f} ' in svg


def test_every_load_test_that_measured_can_be_pointed_at() -> None:
    record = shown(serving_run())
    found = titles(serving_picture(record, WIDE))
    for step in record.trials:
        trial = step.trial
        rate = getattr(trial, "samples_per_second", None)
        assert any(f"Load test {step.number}: {trial.config}" in title for title in found) is (rate is not None)


def test_the_limit_the_front_and_the_verification_are_named() -> None:
    record = shown(serving_run())
    svg = serving_picture(record, WIDE)
    assert "p99 limit of 50 ms" in svg
    assert 'class="limit"' in svg
    assert "verified, at the promised rate" in svg
    assert any(title.startswith("Verified for") for title in titles(svg))
    assert "chosen: batch 4, 1 x 2" in svg


def test_without_a_limit_none_is_drawn() -> None:
    goal = Goal(minimize=Objective.COST)
    run = serving_run()
    svg = serving_picture(shown(replace(run, problem=replace(run.problem, goal=goal), findings=None)), WIDE)
    assert "limit of" not in svg


def test_a_run_without_a_measurement_says_so() -> None:
    run = serving_run()
    bare = replace(run, steps=(), verdict=None, findings=None)
    assert "No load test measured a rate." in serving_picture(shown(bare), NARROW)


@pytest.mark.parametrize("make", [*SERVING.values(), *SERVERLESS.values()])
def test_pages_have_a_picture_for_narrow_screens(make: object) -> None:
    run = make()  # type: ignore[operator]
    page = kind_of(run.kind).html(run)
    assert f'viewBox="0 0 {NARROW:.0f} ' in page
    assert f'viewBox="0 0 {WIDE:.0f} ' in page


def test_a_narrow_picture_of_functions_has_the_losses_below_each_other() -> None:
    record = shown(serverless_run())
    high = [
        float(re.findall(r'viewBox="0 0 \d+ (\d+)', serverless_picture(record, width=width))[0])
        for width in (WIDE, NARROW)
    ]
    assert high[1] > high[0]


def test_wide_tables_stack_on_narrow_screens() -> None:
    run = serving_run()
    page = kind_of(run.kind).html(run)
    assert page.count('<table class="stack"') >= 2
    assert 'data-l="requests/s"' in page


def test_a_legend_stays_inside_a_narrow_picture() -> None:
    drawing = Drawing(key="k", width=340, height=100, title="t", description="d")
    legend(drawing, [("chosen: DTYPE=float32, BATCHING=--continuous-batching --cb-max 2048", "mark", 0)], 340)
    text = re.search(r">(chosen: [^<]*)<", drawing.render())
    assert text
    assert "…" in text[1]
    assert 18 + text_width(text[1], 12) <= 340 - 8


def test_a_limit_of_seconds_is_not_in_milliseconds() -> None:
    slow = serving_run(Goal(minimize=Objective.COST, slo=Slo(seconds=5.0), budget=Usd.of(1)))
    assert "p99 limit of 5 s" in serving_picture(shown(slow), 720)
