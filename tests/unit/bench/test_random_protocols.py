"""benchmarks/protocols.py: what is drawn, that it is the same for all, and what is compared."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import protocols
import pytest
from protocols import Drawn, drawn, paired, rows_of, sim_sources, sources

from mlcd.bench.case import GoalKind, TrainRow, is_unseen
from mlcd.bench.protocol import Work
from mlcd.bench.workloads import SimWorkload, Source, case_of
from mlcd.clouds.replay import ReplayInstance, ReplayWorkload
from mlcd.space import Config
from mlcd.units import Usd

TYPES = tuple("abcdef")
TABLE = ReplayWorkload(
    name="table",
    seconds={Config.deployment(name, n): 3600.0 / n**0.7 for name in TYPES for n in (1, 2, 4, 8)},
    instances={name: ReplayInstance(name=name, usd_per_hour=Usd.of("0.10")) for name in TYPES},
)
BEDS: dict[str, list[Source]] = {"table": [TABLE], "sim": sim_sources()[:8]}


def some(count: int = 40, *, seed: int = 0, work: Work = Work.THROWN) -> list[Drawn]:
    return list(drawn(BEDS, count=count, seed=seed, work=work))


def test_protocols_depend_on_the_seed_alone() -> None:
    assert some(6) == some(6)
    assert some(6) == some(8)[:6]
    assert some(6) != some(6, seed=1)
    kept = [replace(d.protocol, work=Work.THROWN, restart_seconds=0, trial_seconds=0) for d in some(6, work=Work.KEPT)]
    assert kept == [replace(d.protocol, trial_seconds=0) for d in some(6)], (
        "the same jobs, whatever becomes of the work"
    )


def test_protocols_span_what_the_page_says() -> None:
    found = some()
    assert [d.bed for d in found[:4]] == ["table", "sim", "table", "sim"]
    spans: dict[str, tuple[float, float, float, float]] = {  # allowed from, to; some are below, some above
        "hours": (1, 48, 2, 24),
        "noise": (0.01, 0.1, 0.02, 0.05),
        "budget_factor": (1.1, 3, 1.5, 2.5),
        "deadline_factor": (1.2, 4, 1.8, 3.2),
        "trial_seconds": (120, 900, 300, 600),
        "types": (3, 62, 5, 20),
    }
    for name, (low, high, below, above) in spans.items():
        values = [getattr(d.protocol, name) for d in found]
        assert low <= min(values) < below, name
        assert above < max(values) <= high, name
    sizes = [len(case_of(d.source, d.protocol, seed=d.seed)[0].problem.space) for d in found]
    assert min(sizes) >= 8
    assert max(sizes) > 1000
    assert {d.protocol.restart_seconds for d in found} == {0.0}


def test_a_start_is_added_to_the_trial() -> None:
    for thrown, kept in zip(some(), some(work=Work.KEPT), strict=True):
        assert 60 <= kept.protocol.restart_seconds <= 240
        assert thrown.protocol.trial_seconds is not None
        assert kept.protocol.trial_seconds == thrown.protocol.trial_seconds + kept.protocol.restart_seconds


def test_trials_on_the_simulator_outlast_its_start() -> None:
    least = min(d.protocol.trial_seconds or 0.0 for d in some() if isinstance(d.source, SimWorkload))
    assert least >= 300


def test_held_out_workloads_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "table_workloads", lambda _folder: {TABLE.name: TABLE})
    tuned, reported = (sources(Path(), which) for which in ("no", "only"))
    assert list(tuned) == ["scout", "multicloud", "trimtuner", "sim"]
    assert not any(is_unseen(each.name) for bed in tuned.values() for each in bed)
    assert all(is_unseen(each.name) for bed in reported.values() for each in bed)
    assert len(tuned["sim"]) + len(reported["sim"]) == len(sim_sources())


def test_every_strategy_has_the_same_protocol() -> None:
    rows = rows_of(some(3), ["random:steps=2", "oracle"], [GoalKind.FASTEST, GoalKind.CHEAPEST], 1)
    assert len(rows) == 3 * 2 * 2
    for number in range(3):
        same = {(r.workload, r.hours, r.seed, r.optimum) for n, r in rows if n == number and r.goal == "fastest"}
        assert len(same) == 1


def row(workload: str, strategy: str, ratio: float) -> TrainRow:
    return TrainRow(
        workload=workload, unseen=False, strategy=strategy, goal="fastest", hours=1.0, seed=0, status="done", trials=1,
        probe_seconds=1.0, probe_usd=1.0, train_seconds=1.0, train_usd=1.0, total_seconds=1.0, total_usd=1.0,
        limit_seconds=None, limit_usd=None, optimum=1.0, ratio=ratio,
    )  # fmt: skip


def test_differences_are_paired_by_protocol_and_resampled_by_workload() -> None:
    first = [(0, row("a", "x", 1.0)), (1, row("a", "x", 2.0)), (2, row("b", "x", 3.0))]
    other = [(0, row("a", "y", 1.5)), (1, row("a", "y", 2.5)), (2, row("b", "y", 2.0))]
    assert paired([*first, *other], "x", "x", "fastest") is None
    assert paired([*first, *other], "y", "x", "fastest") == (0.0, -1.0, 0.5)


def test_the_script_prints_a_line_for_each_goal_and_strategy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(protocols, "sources", lambda _tables, _unseen: BEDS)
    options = "--strategies oracle,random:steps=2 --goals fastest,budget --count 3 --beds table -o json --rows"
    rows = tmp_path / "rows.json"
    monkeypatch.setattr("sys.argv", ["protocols.py", str(tmp_path), *options.split(), str(rows)])
    protocols.main()
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    lines = [(s["goal"], s["strategy"], s["runs"]) for s in found["summary"]]
    assert lines == [(goal, name, 2) for goal in ("fastest", "budget") for name in ("oracle", "random:steps=2")]
    assert len(json.loads(rows.read_text())) == 8
