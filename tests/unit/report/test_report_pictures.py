import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.rendered import batch_notes_of, html_of, picture_names, picture_of, verdict_of
from tests.report_kind_samples import SERVERLESS, SERVING
from tests.report_samples import (
    SAMPLES,
    batches_run,
    black_box_run,
    budget_run,
    crowded_run,
    hostile_run,
    no_limit_run,
    replayed_run,
    with_choice,
)

from mlcd.errors import BadInput
from mlcd.findings import shown
from mlcd.findings.batches import paid_by
from mlcd.report.frame import series
from mlcd.report.labels import Box, Label, place
from mlcd.report.pictures import pictures_of
from mlcd.report.svg import Drawing, number
from mlcd.report.ticks import Scale, doubling_ticks, fitted_scale, money_ticks, number_ticks, time_ticks
from mlcd.run.run import SearchRun
from mlcd.trial.outcome import Status
from mlcd.units import Usd, format_seconds

EVERY: dict[str, Callable[[], Any]] = {**SAMPLES, **SERVING, **SERVERLESS}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("width", [380, 860])
def test_every_picture_is_well_formed_and_inside_its_page(name: str, width: int) -> None:
    for picture in pictures_of(shown(EVERY[name]())):
        check(picture.draw(width), width)


def check(text: str, width: int) -> None:
    assert not re.search(r"\b(nan|inf|None)\b", text)
    root = ET.fromstring(text)
    assert root.findtext(f"{SVG}title")
    assert root.findtext(f"{SVG}desc")
    height = float(root.attrib["viewBox"].split()[3])
    for element in root.iter():
        for key, limit in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            if key in element.attrib:
                assert -1 <= float(element.attrib[key]) <= limit + 1, ET.tostring(element)
        for pair in (element.get("points") or "").split():
            x, y = map(float, pair.split(","))
            assert -1 <= x <= width + 1
            assert -1 <= y <= height + 1


def label_boxes(text: str) -> Iterator[Box]:
    root = ET.fromstring(text)
    for element in root.iter(f"{SVG}text"):
        if "halo" in (element.get("class") or ""):
            size = float(element.attrib["font-size"])
            half = size * 0.5 * len(element.text or "") / 2
            x, y = float(element.attrib["x"]), float(element.attrib["y"])
            yield Box(x - half, y - size * 0.7, x + half, y)


@pytest.mark.parametrize("make", [budget_run, crowded_run, no_limit_run])
@pytest.mark.parametrize("kind", ["speed", "tradeoff"])
@pytest.mark.parametrize("width", [380, 860])
def test_labels_do_not_overlap(make: Callable[[], SearchRun], kind: str, width: int) -> None:
    boxes = list(label_boxes(picture_of(make(), kind, width=width)))
    assert boxes
    assert all(a.overlap(b) == 0 for a, b in combinations(boxes, 2))


def test_tick_labels_do_not_overlap() -> None:
    for make in (budget_run, crowded_run):
        for kind in picture_names(make()):
            root = ET.fromstring(picture_of(make(), kind, width=380))
            spans: dict[str, list[tuple[float, float]]] = {}
            for e in root.iter(f"{SVG}text"):
                if e.get("text-anchor") == "middle" and "halo" not in (e.get("class") or ""):
                    half, x = 11 * 0.5 * len(e.text or "") / 2, float(e.attrib["x"])
                    spans.setdefault(e.attrib["y"], []).append((x - half, x + half))
            for row in spans.values():
                row.sort()
                assert all(a[1] <= b[0] + 1 for a, b in pairwise(row))


def test_the_search_is_drawn_trial_by_trial() -> None:
    run = budget_run()
    text = picture_of(run, "speed")
    titles = [t.text or "" for t in ET.fromstring(text).iter(f"{SVG}title")]
    for row in run.trials:
        assert any(t.startswith(f"trial: {row.number}\ndeployment: {row.trial.config}\n") for t in titles)
    assert "7: chosen, 20 x p2.xlarge" in text
    assert text.count('class="x-s') == 2  # the two failures
    assert text.count('class="ring"') == 1


def test_the_money_picture_names_a_limit_only_where_there_is_one() -> None:
    told = {name: shown(SAMPLES[name]()) for name in ("budget", "deadline")}
    texts = {name: next(p for p in pictures_of(run) if p.name == "money").description for name, run in told.items()}
    assert "never pass the limit" in texts["budget"]
    assert "limit" not in texts["deadline"]
    assert texts["deadline"].endswith("There is no budget.")


def test_the_money_picture_reaches_the_total_and_the_cap() -> None:
    text = picture_of(budget_run(), "money")
    assert "limit $85.00" in text
    assert "cost: $50.53\nspent: $74.88" in text
    assert "limit $" not in picture_of(no_limit_run(), "money")


def test_limits_are_shaded_where_there_are_limits() -> None:
    assert picture_of(budget_run(), "tradeoff").count('class="shade"') == 1
    assert picture_of(SAMPLES["both-limits"](), "tradeoff").count('class="shade"') == 2
    assert picture_of(no_limit_run(), "tradeoff").count('class="shade"') == 0


def test_a_far_limit_is_named_and_does_not_flatten_the_picture() -> None:
    run = budget_run()
    rich = replace(run, problem=replace(run.problem, goal=replace(run.problem.goal, budget=Usd.of(5000))))
    money, tradeoff = picture_of(rich, "money"), picture_of(rich, "tradeoff")
    assert "limit $5,000.00, far above" in money
    assert money.count('class="limit"') == tradeoff.count('class="limit"') == 1  # the legend's
    assert 'class="shade"' not in tradeoff


def test_unknown_pictures_are_refused() -> None:
    with pytest.raises(BadInput, match="circle"):
        picture_of(budget_run(), "circle")


def test_nothing_infinite_is_drawn() -> None:
    with pytest.raises(ValueError, match="finite"):
        number(math.nan)
    drawing = Drawing(width=10, height=10, title="<t>", description="&")
    drawing.text(1, 1, "<b>&")
    assert "&lt;b&gt;&amp;" in drawing.render()


def test_ticks_are_round_and_inside() -> None:
    linear = Scale(low=0, high=478, start=0, end=1)
    assert [label for _, label in number_ticks(linear)] == ["0", "100", "200", "300", "400"]
    assert [label for _, label in money_ticks(Scale(low=0, high=0.31, start=0, end=1))][:2] == ["$0.00", "$0.10"]
    assert [label for _, label in money_ticks(Scale(low=0.5, high=80, start=0, end=1, log=True))] == [
        "$1",
        "$3",
        "$10",
        "$30",
    ]
    assert [label for _, label in time_ticks(Scale(low=0, high=6 * 3600, start=0, end=1))][:3] == ["0", "1 h", "2 h"]
    assert [label for _, label in doubling_ticks(50)] == ["1", "2", "4", "8", "16", "32"]
    assert fitted_scale([5.0], 0, 1, spread_for_log=10, floor=True).low == 0
    with pytest.raises(ValueError, match="scale"):
        Scale(low=1, high=1, start=0, end=1)


def test_labels_keep_off_each_other_and_inside() -> None:
    bounds = Box(0, 0, 200, 100)
    placed = place([Label(text="12", x=100, y=50) for _ in range(40)], bounds)
    assert 8 <= len(placed) < 40
    assert all(p.box.inside(bounds) for p in placed)
    assert all(a.box.overlap(b.box) == 0 for a, b in combinations(placed, 2))


class Page(HTMLParser):
    """Tags that must balance, and what is loaded from elsewhere."""

    VOID = frozenset({"meta", "br", "img", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value for key, value in attrs if key in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", SAMPLES)
def test_a_report_is_one_balanced_self_contained_page(name: str) -> None:
    text = html_of(SAMPLES[name]())
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open
    assert not page.links
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "@import" not in text
    assert "url(" not in text


def test_user_text_is_escaped() -> None:
    text = html_of(hostile_run())
    for evil in ("<script", "<img", "<b>bold", "<i>", "<u>"):
        assert evil not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#34;&#39;" in text


def test_the_report_shows_the_answer_the_receipt_and_how_to_repeat() -> None:
    text = html_of(budget_run())
    for part in ("SIMULATED", "<h1>20 x p2.xlarge</h1>", "$74.88", "$10.12 left", "heterbo", "2026-02-01", "99.9999%"):
        assert part in text
    assert "SIMULATED" not in html_of(no_limit_run())
    assert "$90.94 over" in html_of(SAMPLES["overran"]())


def test_a_replayed_run_says_so_and_shows_the_jobs_time() -> None:
    run = replayed_run()
    page = html_of(run)
    assert "<b>REPLAYED</b> Times and prices are those of the measured table scout" in page
    assert "SIMULATED" not in page
    assert "samples/s" not in page
    assert "Job time (95%)" in page
    text = picture_of(run, "speed")
    assert ">job time" in text
    assert "2 h 46 min" in text


def test_a_picture_alone_says_whether_it_is_real() -> None:
    for kind in picture_names(budget_run()):
        assert ">SIMULATED" in picture_of(budget_run(), kind)
        assert ">REPLAYED" in picture_of(replayed_run(), kind)
        real = picture_of(no_limit_run(), kind)
        assert "SIMULATED" not in real
        assert "REPLAYED" not in real


def test_a_failed_training_reads_well() -> None:
    page = html_of(SAMPLES["run-failed"]())
    for part in (
        "<h1>The training failed</h1>",
        "Chosen: <b>14 x p2.xlarge</b>",
        "Training (failed)",
        "Training died with mlcd",
        "until it failed",
    ):
        assert part in page
    assert "Compared with not searching" not in page
    money = picture_of(SAMPLES["run-failed"](), "money")
    assert "outcome: died with mlcd" in money
    assert "outcome: failed" in money
    assert "cost: $4.20" in money


def test_naive_choices_are_marked_on_the_page() -> None:
    assert html_of(SAMPLES["both-limits"]()).count("would break the deadline") == 2


def test_a_vague_prediction_does_not_stretch_the_axes() -> None:
    run = budget_run()
    seen = replace(run.naive[0], measured=False)
    untried = next(config for config in run.problem.space if config not in run.history.tried)
    drawn = []
    for factor in (1, 1000):
        usd, seconds = seen.plan.worst_usd * factor, seen.plan.worst_seconds * factor
        naive = replace(seen, plan=replace(seen.plan, config=untried, worst_usd=usd, worst_seconds=seconds))
        drawn.append(picture_of(with_choice(run, run.choice, (naive,)), "tradeoff"))
    circles = [re.findall(r"<circle[^>]*>", text) for text in drawn]
    assert any("hollow" in circle for circle in circles[0])
    assert circles[0] == circles[1]


def test_ids_are_unique() -> None:
    ids = re.findall(r'\bid="([^"]+)"', html_of(budget_run()))
    assert ids == [*(f"picture-{name}" for name in picture_names(budget_run())), "decisions"]


# ---- runs whose batch was chosen


def spoken(text: str) -> list[str]:
    """What the marks say when they are pointed at."""
    return [t.text or "" for t in ET.fromstring(text).iter(f"{SVG}title")][1:]


def test_every_batch_has_its_curve_predicted_and_measured() -> None:
    run = batches_run()
    text = picture_of(run, "batches")
    marks = spoken(text)
    for nodes in (1, 2, 3, 4):
        for batch in (64, 128, 256, 512):
            found = [mark for mark in marks if f"K (nodes): {nodes}\nB (global batch): {batch}\n" in mark]
            measured = any(t.config.nodes == nodes and t.config["batch"] == batch for t in run.history)
            assert found, f"{nodes} x {batch} is not there"
            assert ("what it is: predicted" in found[0]) is not measured
    assert run.choice is not None
    chosen = f"B (global batch): 512\ntime: {format_seconds(run.choice.seconds)}\ncost: {run.choice.usd}\n"
    found = [mark for mark in marks if mark.startswith("K (nodes): 4\n") and chosen in mark]
    assert len(found) == 2, "its mark and its ring"


def test_the_choice_s_ring_stays_and_other_prices_have_their_own_knee() -> None:
    by_node, by_memory = batches_run(), batches_run(by_memory=True)
    assert not paid_by(by_node.problem).is_by_memory
    assert paid_by(by_memory.problem).fixed == pytest.approx(0.4, abs=1e-3)
    assert "a fixed price per node" in picture_of(by_node, "batches")
    assert "priced by memory" in picture_of(by_node, "batches-repriced")
    assert "priced by memory" in picture_of(by_memory, "batches")
    assert "a fixed price per node" in picture_of(by_memory, "batches-repriced")
    here, there = (
        next(mark.splitlines()[:4] for mark in spoken(text) if mark.startswith("K (nodes): 4\nB (global batch): 512\n"))
        for text in (picture_of(by_node, "batches"), picture_of(by_memory, "batches-repriced"))
    )
    assert there == here, "the node's price is found again from prices by memory"


def test_the_report_explains_the_noise_scale() -> None:
    run = batches_run()
    first, second, third = batch_notes_of(run)
    assert "noise scale was about 300 samples in the trials, and 420 samples are expected over the rest" in first
    assert second == "By this noise a sample counts at 512 for 52% of one at a batch of 64."
    assert "accuracy >= 0.97 was expected at about" in third
    assert 0.1 < shown(run).train_findings.done_share < 0.9
    assert all(sentence in verdict_of(run).replace("\n  ", " ") for sentence in (first, second, third))
    for decay in (None, 0.0, 1.0):
        assert batch_notes_of(batches_run(decay=decay)) == [first, second, third], "under every rule"
    assert any(
        note == "By its learning-rate rule a sample counts at 512 for 35% of one at a batch of 64."
        for note in batch_notes_of(batches_run(noise_scale=None))
    )


def test_a_job_without_noise_reports_is_called_a_black_box() -> None:
    run = black_box_run()
    box, by_rule, unpredicted = batch_notes_of(run)
    assert by_rule.startswith("By its learning-rate rule a sample counts")
    assert "reports no SGD noise, so only its parallel performance was modelled" in box
    assert "could not predict when" in unpredicted
    assert shown(run).train_findings.done_share == 0.0
    page = html_of(run)
    assert "only its parallel performance was modelled" in page
    assert "until accuracy &gt;= 0.97" in page
    assert "Time of a million samples" in picture_of(run, "batches")


def test_only_runs_with_a_batch_to_choose_have_its_pictures() -> None:
    of_batches = ("batches", "batches-repriced")
    assert not set(picture_names(budget_run())) & set(of_batches)
    assert picture_names(batches_run())[:2] == of_batches
    assert "Nodes and batches" not in html_of(budget_run())
    assert "Nodes and batches" in html_of(batches_run())
    assert batch_notes_of(budget_run()) == []


def test_the_speed_picture_has_a_curve_per_batch() -> None:
    text = picture_of(batches_run(), "speed")
    for batch in (64, 256, 512):
        assert f">B = {batch}<" in text


def test_type_has_one_look_in_all_runs_of_a_job() -> None:
    """By its place in the job, whatever was chosen or tried first."""
    run = shown(budget_run())
    types = list(dict.fromkeys(config.instance for config in run.problem.space))
    looks = series(run)
    assert len(looks) > 1
    assert {name: look.css for name, look in looks.items()} == {name: f"s{types.index(name)}" for name in looks}
    assert {look.shape for look in looks.values()} == {types.index(name) for name in looks}
    last = tuple(step for step in run.steps if step.config["instance"] == types[-1])
    alone = shown(replace(run, steps=last, verdict=None, findings=None, status=Status.INTERRUPTED))
    line = next(each for each in pictures_of(alone) if each.name == "timeline").draw(760.0)
    assert set(re.findall(r'class="(c-s[0-9])"', line)) == {f"c-s{len(types) - 1}"}, "the time line has the same"
    later = shown(replace(run, steps=run.steps[-3:], findings=None))
    assert all(look == looks[name] for name, look in series(later).items())
