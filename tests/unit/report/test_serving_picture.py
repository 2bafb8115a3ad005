"""The picture of a serving run: every load test, the limit, the front, the choice and its verification."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from tests.rendered import picture_of
from tests.report_kind_samples import SERVERLESS, SERVING, serverless_run, serving_run
from tests.report_samples import with_attempts

from mlcd.findings import shown
from mlcd.goal import Goal, Objective, Slo
from mlcd.kinds import kind_of
from mlcd.report.frame import legend
from mlcd.report.labels import text_width
from mlcd.report.map_picture import _short_name
from mlcd.report.page import NARROW, WIDE
from mlcd.report.step_words import outcome_text
from mlcd.report.svg import Drawing
from mlcd.run.attempt import Attempt, Ending
from mlcd.units import Usd


def titles(svg: str) -> list[str]:
    return re.findall(r"<title>(.*?)</title>", svg, re.S)


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", SERVING)
def test_every_serving_run_has_a_picture(name: str, width: float) -> None:
    svg = picture_of(shown(SERVING[name]()), "latency", width=width)
    ElementTree.fromstring(svg)
    assert f'viewBox="0 0 {width:.0f} ' in svg


def test_every_load_test_that_measured_can_be_pointed_at() -> None:
    record = shown(serving_run())
    found = titles(picture_of(record, "latency", width=WIDE))
    for step in record.trials:
        trial = step.trial
        rate = getattr(trial, "samples_per_second", None)
        assert any(f"Load test {step.number}\nconfiguration: {trial.config}" in title for title in found) is (
            rate is not None
        )


def test_the_limit_the_front_and_the_verification_are_named() -> None:
    record = shown(serving_run())
    svg = picture_of(record, "latency", width=WIDE)
    assert "p99 limit of 50 ms" in svg
    assert 'class="limit"' in svg
    assert "verified, at the promised rate" in svg
    assert any(title.startswith("what: Verified for") for title in titles(svg))
    assert "chosen: batch 4, 1 x 2" in svg


def test_without_a_limit_none_is_drawn() -> None:
    goal = Goal(minimize=Objective.COST)
    run = serving_run()
    svg = picture_of(shown(replace(run, problem=replace(run.problem, goal=goal), findings=None)), "latency", width=WIDE)
    assert "limit of" not in svg


def test_a_run_without_a_measurement_says_so() -> None:
    run = serving_run()
    bare = replace(run, steps=(), verdict=None, findings=None)
    assert "No load test measured a rate." in picture_of(shown(bare), "latency", width=NARROW)


@pytest.mark.parametrize("make", [*SERVING.values(), *SERVERLESS.values()])
def test_pages_have_a_picture_for_narrow_screens(make: object) -> None:
    run = make()  # type: ignore[operator]
    page = kind_of(run.kind).html(run)
    assert f'viewBox="0 0 {NARROW:.0f} ' in page
    assert f'viewBox="0 0 {WIDE:.0f} ' in page


def test_a_narrow_picture_of_functions_has_the_losses_below_each_other() -> None:
    record = shown(serverless_run())
    high = [
        float(re.findall(r'viewBox="0 0 \d+ (\d+)', picture_of(record, "epochs", width=width))[0])
        for width in (WIDE, NARROW)
    ]
    assert high[1] > high[0]


def test_wide_tables_stack_on_narrow_screens() -> None:
    run = serving_run()
    page = kind_of(run.kind).html(run)
    assert page.count('<table class="stack"') >= 2
    assert 'data-l="requests/s"' in page


def test_a_legend_stays_inside_a_narrow_picture() -> None:
    drawing = Drawing(width=340, height=100, title="t", description="d")
    legend(drawing, [("chosen: DTYPE=float32, BATCHING=--continuous-batching --cb-max 2048", "mark", 0)], 340)
    text = re.search(r">(chosen: [^<]*)<", drawing.render())
    assert text
    assert "…" in text[1]
    assert 18 + text_width(text[1], 12) <= 340 - 8


def test_a_limit_of_seconds_is_not_in_milliseconds() -> None:
    slow = serving_run(Goal(minimize=Objective.COST, slo=Slo(seconds=5.0), budget=Usd.of(1)))
    assert "p99 limit of 5 s" in picture_of(shown(slow), "latency", width=720)


def test_rows_of_a_narrow_map_can_be_told_apart() -> None:
    long = [f"threads {threads}, replicas 1, precision {kind}" for threads in (1, 2) for kind in ("fp32", "int8")]
    assert [_short_name(row) for row in long] == ["t1 r1 fp32", "t1 r1 int8", "t2 r1 fp32", "t2 r1 int8"]
    assert _short_name("g5.xlarge, B = 1,024") == "g5.xlarge B1,024"


def test_a_verification_that_failed_did_not_move() -> None:
    failed = Attempt(
        config=serving_run().trials[0].config,
        seconds=10.0,
        usd=Usd.of(0.1),
        ending=Ending.MOVED,
        message="p99 of 90 ms",
    )
    run = with_attempts(serving_run(), failed)
    assert outcome_text(run, run.steps[-1]) == "failed: p99 of 90 ms"
