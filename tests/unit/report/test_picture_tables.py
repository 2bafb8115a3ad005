"""Every picture of every kind: bounded, inert, with a table that has every mark; the map, the time line, decisions."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html import unescape
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.rendered import html_of, picture_of
from tests.report_kind_samples import SERVERLESS, SERVING, serverless_run, serving_run
from tests.report_samples import NODES, SAMPLES, budget_run, record

from mlcd.findings import shown
from mlcd.goal import Goal, Objective
from mlcd.kinds import kind_of
from mlcd.known.resemblance import Resemblance
from mlcd.report.decisions import decisions
from mlcd.report.labels import text_width
from mlcd.report.page import NARROW, WIDE
from mlcd.report.picture import Picture
from mlcd.report.pictures import picture_among, pictures_of
from mlcd.report.sparkline import best_so_far, sparkline
from mlcd.report.tradeoff_picture import tradeoff
from mlcd.run.findings import RejectionReason, Untried, UntriedState, best_expected
from mlcd.run.grid import MOST_EACH, MOST_GROUPS, column_knob, map_configs
from mlcd.run.run import AnyRun, SearchRun
from mlcd.space import Config
from mlcd.trial.outcome import Status
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd

SVG = "{http://www.w3.org/2000/svg}"
EVERY: dict[str, Callable[[], Any]] = {
    **{f"train-{name}": make for name, make in SAMPLES.items()},
    **{f"serve-{name}": make for name, make in SERVING.items()},
    **{f"serverless-{name}": make for name, make in SERVERLESS.items()},
}
MOST_SHAPES = 4_000
"""Elements of one picture: each of 400 marks may have an interval, a ring and a text, and a cell its hatching."""


def long_run(count: int) -> SearchRun:
    types = ("c5.xlarge", "c5n.4xlarge", "p2.xlarge")
    search = tuple(
        (types[at % 3], NODES[at % len(NODES)], FailureKind.LAUNCH if at % 7 == 3 else 10.0 + at % 97, f"reason {at}")
        for at in range(count)
    )
    return record(Goal(minimize=Objective.TIME, budget=Usd.of(9000)), search=search, chosen=(types[0], NODES[0]))


@cache
def pictures_of_500_steps() -> tuple[Picture, ...]:
    return tuple(pictures_of(shown(long_run(500))))


def titles(svg: str) -> list[str]:
    """What the marks show when they are pointed at."""
    return [t.text or "" for t in ET.fromstring(svg).iter(f"{SVG}title")][1:]


def under_way(run: Any, steps: int) -> Any:
    """The run after so many steps, the next in flight."""
    done = run.steps[:steps]
    if steps < len(run.steps):
        done = (*done, replace(run.steps[steps], outcome=None, ended_seconds=None, ended_moment=None))
    return replace(run, steps=done, status=Status.RUNNING, verdict=None, findings=None)


@pytest.mark.parametrize("name", EVERY)
def test_every_mark_is_in_its_table_and_pictures_have_names(name: str) -> None:
    pictures = pictures_of(shown(EVERY[name]()))
    assert len({picture.name for picture in pictures}) == len(pictures) >= 3
    for picture in pictures:
        rows = {picture.table.hover(at) for at in range(len(picture.table.rows))}
        for width in (WIDE, NARROW):
            svg = picture.draw(width)
            assert set(titles(svg)) <= {" ".join(row.split()) for row in rows} | rows, picture.name
            root = ET.fromstring(svg)
            assert root.get("role") == "img"
            assert root.get("aria-label")
            assert not [e for e in root.iter() if e.get("tabindex")], "the table is the way for the keyboard"
        assert picture.title
        assert picture.description


@pytest.mark.parametrize("make", [budget_run, serving_run, serverless_run])
@pytest.mark.parametrize("steps", range(5))
def test_a_run_under_way_has_its_pictures_and_decisions(make: Callable[[], Any], steps: int) -> None:
    run = shown(under_way(make(), steps))
    for picture in pictures_of(run):
        for width in (WIDE, NARROW):
            assert "nan" not in picture.draw(width).replace("tenant", "")
    assert kind_of(run.kind).html(run)
    running = [line for line in decisions(run) if line.step == run.in_flight[0].number] if run.in_flight else []
    assert all("running" in line.text for line in running)
    assert len(running) == len(run.in_flight)
    if run.in_flight:
        assert "running" in picture_of(run, "money")
        assert 'class="o-' in picture_of(run, "timeline")


@pytest.mark.parametrize("name", ["map", "timeline", "money", "speed", "tradeoff"])
def test_a_run_of_500_steps_stays_bounded(name: str) -> None:
    svg = picture_among(pictures_of_500_steps(), name, where="there is").draw(WIDE)
    assert len(list(ET.fromstring(svg).iter())) < MOST_SHAPES
    assert len(svg) < 1_000_000


def cells(picture: Picture) -> dict[str, tuple[str, ...]]:
    return {row[0]: row for row in picture.table.rows}


def the_map(run: AnyRun) -> Picture:
    return picture_among(pictures_of(shown(run)), "map", where="there is")


def test_the_map_says_of_every_cell_what_is_known_and_why() -> None:
    run = shown(budget_run())
    found = cells(the_map(run))
    assert found["20 x p2.xlarge"][1:2] == ("chosen",)
    assert found["8 x p2.xlarge"][1] == "measured"
    assert "longer" in found["8 x p2.xlarge"][3]
    assert found["32 x p2.xlarge"][1] == "failed"
    assert "no-capacity" in found["32 x p2.xlarge"][2]
    untried = run.train_findings.untried
    assert {each.config for each in untried}.isdisjoint(run.history.tried)
    by_state = {each.state for each in untried}
    assert {UntriedState.REFUSED, UntriedState.RULED_OUT} <= by_state
    for each in untried:
        assert each.text
        if each.state is UntriedState.REFUSED:
            assert re.search(r"its trial costs up to \$[\d.]+, and \$[\d.]+ is free", each.text)
            assert found[str(each.config)][1].startswith("refused")


def test_name_of_the_maps_axis_is_not_cut_off() -> None:
    """One row without a name of its own leaves little room at the left."""
    for width in (380.0, 1180.0):
        svg = ET.fromstring(the_map(serving_run()).draw(width))
        names = [each for each in svg.iter() if each.tag.endswith("text") and each.text == "batch"]
        assert len(names) == 1
        assert float(names[0].attrib["x"]) >= text_width("batch", 11)


def test_the_map_has_a_bounded_grid_with_everything_that_was_tried() -> None:
    run = long_run(60)
    configs = map_configs(run)
    assert len(configs) <= MOST_GROUPS * MOST_EACH
    assert column_knob(run.problem.space) == "nodes"
    small = budget_run()
    assert small.history.tried <= set(map_configs(small))
    assert column_knob(serving_run().problem.space) == "batch"


def test_the_map_of_functions_has_what_was_used() -> None:
    run = serverless_run()
    found = cells(the_map(run))
    fleet = run.epochs[0].fleet
    assert found[f"{fleet.functions} x {fleet.memory_mb:,} MB"][1] == "measured"


def test_skipped_trials_are_among_the_decisions_with_their_price_and_what_was_free() -> None:
    run = shown(budget_run())
    lines = decisions(run)
    texts = [line.text for line in lines]
    skipped = [line for line in lines if line.what == "skipped"]
    assert skipped
    assert all(re.match(r"Skipped .*(costs|takes) up to .* is free", line.text) for line in skipped)
    assert any(
        text.startswith("Tried 8 x p2.xlarge (greatest expected gain for its price): 301 samples/s; measured in")
        for text in texts
    )
    assert any("no-capacity: no capacity for 32 x p2.xlarge" in text for text in texts)
    assert any(text.startswith("Chose 20 x p2.xlarge: ") for text in texts)
    assert texts.index(next(text for text in texts if text.startswith("Chose"))) == len(texts) - 2
    assert texts[-1].startswith("Trained on 20 x p2.xlarge")
    final = run.steps[-1]
    assert final.outcome is not None
    assert lines[-1].seconds == final.started_seconds + final.outcome.seconds, "when it was done"
    assert [line.seconds for line in lines] == sorted(line.seconds for line in lines)
    assert all(unescape(text) in unescape(html_of(run)) for text in texts)


def test_operators_and_models_are_drawn_with_their_shares() -> None:
    run = serving_run()
    assert run.serving is not None
    alike = Resemblance(
        nearest=(("resnet", 0.9),),
        covered=0.8,
        unseen=("Odd",),
        source="tables",
        operators=(("Conv", 0.7, True), ("Odd", 0.2, False)),
    )
    run = replace(run, header=replace(run.header, serving=replace(run.serving, resemblance=alike)))
    picture = picture_among(pictures_of(shown(run)), "operators", where="there is")
    assert ("operator", "Conv", "70.0% of its time", "measured before") in picture.table.rows
    assert ("operator", "Odd", "20.0% of its time", "never measured before") in picture.table.rows
    assert ("known model", "resnet", "90% alike", "tables") in picture.table.rows


def test_a_sparkline_shows_the_best_so_far() -> None:
    values = best_so_far(budget_run())
    assert list(values) == sorted(values)
    assert values[-1] == 478.0
    svg = sparkline(values)
    ET.fromstring(svg)
    assert "from 6.1 to 478" in svg
    assert len(sparkline(range(1, 10_000))) < 8_000
    assert sparkline(()) == ""
    losses = best_so_far(serverless_run())
    assert list(losses) == sorted(losses, reverse=True)


def test_map_of_functions_counts_the_cells_that_it_shows() -> None:
    """A phone's picture has fewer columns than a wide one, and both fewer than the job allows."""
    run = serverless_run()
    run = shown(replace(run, problem=replace(run.problem, functions=tuple(range(1, 101))), findings=None))
    picture = picture_among(pictures_of(run), "map", where="the run has")
    every = len(run.problem.functions) * len(run.problem.memory_mb)
    counts = set()
    for width in (340.0, 1180.0):
        svg = picture.draw(width)
        cells = len(re.findall(r'<rect class="(?:c-s0|open|blank|foreseen|over-limit)"[^>]*><title>', svg))
        assert f"{cells} of {every} fleets drawn" in svg
        assert f"{cells} fleets" in svg
        counts.add(cells)
    assert len(counts) == 2


def test_best_of_an_untried_type_is_drawn_as_the_reasons_name_it() -> None:
    run = shown(budget_run())
    tried = {config.instance for config in run.history.tried}
    naive = run.naive[0]

    def expected(nodes: int, seconds: float, state: UntriedState) -> Untried:
        own = Config.deployment("x9.large", nodes)
        return Untried(config=own, state=state, text="", seconds=seconds, usd=Usd.of(nodes))

    assert "x9.large" not in tried
    slow, best = (expected(*each, UntriedState.PREDICTED) for each in ((1, 9e4), (4, 3e4)))
    over = expected(8, 2e4, UntriedState.OVER_LIMIT)
    own = replace(naive, plan=replace(naive.plan, config=slow.config), measured=False)
    found = replace(run.train_findings, untried=(slow, best, over))
    assert run.verdict is not None
    assert run.findings is not None
    made = replace(run, findings=replace(run.findings, train=found), verdict=replace(run.verdict, naive=(own,)))
    rows = {row[0]: row for row in tradeoff(made).table.rows if "x9.large" in row[0]}
    assert list(rows) == [str(best.config)]
    assert rows[str(best.config)][-1] == "not tried: predicted"
    assert best_expected(run.problem.goal, [over, best]) == best
    assert best_expected(run.problem.goal, [over]) == over
    assert best_expected(run.problem.goal, [replace(best, seconds=None)]) is None


def test_the_map_marks_measured_cells_over_a_limit_with_what_breaks_it() -> None:
    run = shown(budget_run())
    plan = next(each for each in run.train_findings.ranked if run.choice and each.config != run.choice.config)
    assert run.findings is not None

    def with_caps(cap_usd: Usd | None = None, cap_seconds: float | None = None) -> Picture:
        paid = replace(run.train_findings.receipt, cap_usd=cap_usd, cap_seconds=cap_seconds)
        train = replace(run.train_findings, receipt=paid)
        assert run.findings is not None
        made = replace(run, findings=replace(run.findings, train=train))
        return picture_among(pictures_of(made), "map", where="there is")

    sunk = run.train_findings.receipt
    free, late = with_caps(), with_caps(cap_seconds=sunk.sunk_seconds + plan.seconds / 2)
    assert cells(free)[str(plan.config)][1] == "measured"
    assert "measured over a limit" not in free.description
    _, state, result, _ = cells(late)[str(plan.config)]
    assert state == "measured over a limit"
    assert ", later than the " in result
    assert "measured over a limit" in late.description
    assert "A cell over a limit has what breaks it: time or money." in late.description
    assert 'class="measured-over"' in late.draw(WIDE)
    over = with_caps(cap_usd=sunk.sunk_usd + Usd(plan.usd.micros // 2))
    assert ", over the $" in cells(over)[str(plan.config)][2]
    shorts = [re.findall(r">(\$?[\d.,]+[smhd]?)</text>", each.draw(WIDE)) for each in (late, over)]
    assert sum(text.startswith("$") for text in shorts[1]) > sum(text.startswith("$") for text in shorts[0])


def test_the_text_of_a_map_names_the_cells_of_its_legend() -> None:
    for make in (budget_run, serving_run, serverless_run):
        picture = the_map(make())
        states = {row[1] for row in picture.table.rows}
        for state in ("chosen", "failed", "running", "predicted over a limit", "ruled out", "not tried", "refused"):
            named = any(each == state or each.startswith(f"{state}:") for each in states)
            assert named == (state in picture.description), state


def test_a_servers_load_test_that_broke_a_limit_is_marked_on_the_map() -> None:
    run = shown(serving_run())
    broken = {str(each.config) for each in run.serve_findings.rejected if each.reason is RejectionReason.BREAKS_SLO}
    assert broken
    found = cells(the_map(run))
    assert {name for name, row in found.items() if row[1] == "measured over a limit"} == broken
