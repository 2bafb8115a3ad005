"""Whatever a run says, its report is small: extreme values, huge counts, texts that would control a terminal."""

import io
import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.rendered import html_of, json_of, picture_names, picture_of, plot_of, serverless_html_of, verdict_of
from tests.report_kind_samples import serverless_run
from tests.report_samples import NODES, SAMPLES, budget_run, problem, record, with_trials

from mlcd.events import Warned
from mlcd.findings import shown
from mlcd.goal import Goal, Objective
from mlcd.report.live import LiveLine
from mlcd.report.serverless import serverless_verdict
from mlcd.report.thinning import MOST_MARKS, MOST_ROWS, ends, thinned
from mlcd.report.ticks import (
    MOST_TICKS,
    Scale,
    doubling_ticks,
    fitted_scale,
    money_ticks,
    number_ticks,
    plain_number,
    time_ticks,
)
from mlcd.report.wording import percent_text, short_seconds, speed_text
from mlcd.run.run import EpochRun, SearchRun
from mlcd.trial.epoch import Epoch, FailedEpoch
from mlcd.trial.trial import Failure, FailureKind, Measurement
from mlcd.units import Usd, format_seconds

MOST_LABEL = 26
MOST_SVG = 400_000
MOST_PAGE = 4_000_000
EVIL = "\x1b]0;owned\x07\x1b[31mred [red]x[/red] [link=http://x]y[/link] \x9b\u202e\x00<b>&\r\n\ud800"

_EXTREMES = st.sampled_from(
    [0.0, 5e-324, 1e-300, 1e-12, 1e-6, 0.1, 1.0, 7.0, 1e3, 1e9, 1e18, 1e27, 1e250, 1e300, 1.7e308]
)
values = st.one_of(_EXTREMES, st.floats(min_value=0, max_value=1.7e308))


@given(st.lists(values, min_size=1, max_size=6), st.sampled_from([1.5, 12.0, 1e9]), st.booleans())
def test_every_axis_has_few_short_ticks_and_finite_places(found: list[float], spread: float, floor: bool) -> None:
    scale = fitted_scale(found, 10.0, 410.0, spread_for_log=spread, floor=floor)
    for ticks in (number_ticks(scale), money_ticks(scale), time_ticks(scale), doubling_ticks(scale.high)):
        assert len(ticks) <= MOST_TICKS
        assert all(len(label) <= MOST_LABEL for _, label in ticks), ticks
        assert all(math.isfinite(scale(value)) for value, _ in ticks)
    assert all(-400 <= scale(value) <= 820 for value in found)


@given(values, values)
def test_a_linear_axis_of_any_span_has_few_ticks(low: float, high: float) -> None:
    low, high = sorted((min(low, 1e250), min(high, 1e250)))
    if not low < high:
        return
    scale = Scale(low=low, high=high, start=0.0, end=400.0)
    for ticks in (number_ticks(scale), money_ticks(scale), time_ticks(scale)):
        assert len(ticks) <= MOST_TICKS


@example(-100000000000000.2)
@given(st.one_of(values, values.map(lambda value: -value), st.just(math.inf)))
def test_every_number_is_written_in_a_few_characters(value: float) -> None:
    texts = [format_seconds(value), short_seconds(value) if math.isfinite(value) else "", plain_number(value)]
    texts += [speed_text(value), percent_text(value) if math.isfinite(value) else ""]
    if math.isfinite(value):
        texts.append(str(Usd(int(value * 1e6)) if abs(value) < 1e300 else Usd(int(value) * 10**6)))
    assert all(len(text) <= MOST_LABEL for text in texts), texts


def test_a_time_axis_of_1e18_samples_has_few_ticks() -> None:
    scale = Scale(low=0.0, high=3.2e23, start=0.0, end=800.0)
    assert 2 <= len(time_ticks(scale)) <= 8  # took 24 GB


@pytest.mark.parametrize("speed", [5e-324, 1e-300, 1e-9, 1e18, 1e300])
@pytest.mark.parametrize("work", [1e-9, 1e27])
def test_reports_of_extreme_speeds_are_small_and_well_formed(speed: float, work: float) -> None:
    made = budget_run()
    asked = replace(made.problem, work_samples=work)
    search = [
        replace(step, outcome=replace(step.trial, samples_per_second=speed * factor))
        if isinstance(step.trial, Measurement)
        else step
        for step, factor in zip(made.trials, (1, 1, 2, 50) * 3, strict=True)
    ]
    _check(with_trials(replace(made, problem=asked, verdict=replace(made.verdict, choice=None)), search))  # type: ignore[type-var]


def _check(run: SearchRun) -> None:
    found = shown(run)
    for kind in picture_names(found):
        picture = picture_of(found, kind)
        ElementTree.fromstring(picture)
        assert len(picture) < MOST_SVG
    assert len(html_of(found)) < MOST_PAGE
    assert len(verdict_of(found)) < 100_000
    assert len(plot_of(found)) <= 15
    json_of(found)


def _long_run(count: int) -> SearchRun:
    """`count` trials of all types, every seventh failed."""
    types = ("c5.xlarge", "c5n.4xlarge", "p2.xlarge")
    search = tuple(
        (types[at % 3], NODES[at % len(NODES)], FailureKind.LAUNCH if at % 7 == 3 else 10.0 + at % 991, f"reason {at}")
        for at in range(count)
    )
    return record(Goal(minimize=Objective.TIME), search=search, chosen=(types[0], NODES[0]))


def test_a_run_of_thousands_of_trials_is_thinned_and_says_so() -> None:
    run = shown(_long_run(1_100))
    for kind in picture_names(run):
        picture = picture_of(run, kind)
        ElementTree.fromstring(picture)
        assert len(picture) < MOST_SVG
    assert re.search(r"2[0-4]\d of 1,100 trials drawn", picture_of(run, "speed"))
    assert f"{MOST_MARKS} of 1,101 steps drawn" in picture_of(run, "money")
    page = html_of(run)
    assert len(page) < MOST_PAGE
    assert "The first 500 and the last 500 of 1,100 trials; `mlcd show" in page
    assert page.count("<tr") < 3 * MOST_ROWS
    assert "reason 0<" in page
    assert "reason 1099<" in page
    assert len(verdict_of(run)) < 200_000


def _long_training(count: int, *, failed: bool = False) -> EpochRun:
    made = serverless_run()
    first = made.steps[0]
    assert isinstance(first.outcome, Epoch)
    lost = FailedEpoch(number=1, fleet=first.outcome.fleet, seconds=1.0, usd=Usd.of("0.01"), message="no memory")
    steps = tuple(
        replace(
            first,
            number=at + 1,
            outcome=replace(lost, number=at + 1)
            if failed
            else replace(first.outcome, number=at + 1, loss=1 / (at + 1)),
        )
        for at in range(count)
    )
    return replace(made, steps=steps)


@pytest.mark.parametrize("failed", [False, True])
def test_a_training_of_thousands_of_epochs_is_thinned_and_says_so(failed: bool) -> None:
    run = shown(_long_training(1_500, failed=failed))
    picture = picture_of(run, "epochs")
    ElementTree.fromstring(picture)
    assert len(picture) < MOST_SVG
    page = serverless_html_of(run)
    assert len(page) < MOST_PAGE
    assert "of 1,500 epochs; `mlcd show" in page
    assert failed or f"{MOST_MARKS} of 1,500 epochs drawn" in picture
    text = serverless_verdict(run)
    assert text.count("\n") < 500
    assert "of 1,500 epochs; `mlcd show" in " ".join(text.split())


@pytest.mark.parametrize("loss", [0.0, 5e-324, 1e-300, 1e300])
def test_a_training_of_extreme_losses_is_drawn(loss: float) -> None:
    made = serverless_run()
    steps = [
        replace(step, outcome=replace(step.outcome, loss=loss)) if isinstance(step.outcome, Epoch) else step
        for step in made.steps
    ]
    for target in (1e-300, 0.4, -1e12):
        run = shown(replace(made, steps=tuple(steps), problem=replace(made.problem, target_loss=target)))
        ElementTree.fromstring(picture_of(run, "epochs"))
        assert len(serverless_html_of(run)) < MOST_PAGE


def test_thinning_keeps_the_ends_the_order_and_what_matters() -> None:
    kept = thinned(range(10_000), 50, keep=lambda at: at == 4_321)
    assert len(kept) <= 50
    assert kept == sorted(set(kept))
    assert {0, 4_321, 9_999} <= set(kept)
    assert thinned(range(50), 50) == list(range(50))
    assert len(thinned(range(10_000), 50, keep=lambda _: True)) <= 50
    assert ends(range(100), 5) == [0, 1, 2, 98, 99]


def _evil_run() -> SearchRun:
    made = budget_run()
    trials = [
        replace(
            step,
            reason=EVIL,
            outcome=replace(step.trial, message=EVIL * 200) if isinstance(step.trial, Failure) else step.trial,
        )
        for step in made.trials
    ]
    return with_trials(made, trials)


def _controls(text: str) -> set[str]:
    return {character for character in text if not character.isprintable() and character not in "\n\t"}


def test_nothing_that_a_job_says_controls_a_terminal_or_breaks_a_page() -> None:
    run = _evil_run()
    page, text = html_of(run), verdict_of(run)
    assert _controls(text) == set()
    assert _controls(page) == set()
    assert "[red]x[/red]" in text  # shown as it is, not obeyed
    assert "<b>&" not in page
    page.encode()
    text.encode()
    for kind in picture_names(run):
        picture = picture_of(run, kind)
        ElementTree.fromstring(picture)
        assert _controls(picture) == set()
        assert len(picture) < MOST_SVG


def test_no_warning_or_log_line_controls_a_terminal() -> None:
    stream = io.StringIO()
    with LiveLine(stream, colour=False) as live:
        live(Warned(text=EVIL))
        live.line(EVIL, f"a {EVIL}")
    assert _controls(stream.getvalue()) == set()
    assert "[red]x[/red]" in stream.getvalue()


def test_no_name_breaks_a_page() -> None:
    evil = "\x1b[31m<script>\x00"
    asked = problem(Goal(minimize=Objective.TIME), name=evil)
    run = replace(budget_run(), problem=asked)
    assert _controls(html_of(run)) == set()
    assert "<script>" not in html_of(run)


@pytest.mark.extra
@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_small(name: str) -> None:
    _check(SAMPLES[name]())
