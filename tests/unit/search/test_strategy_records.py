"""The records of HeterBO's paper and of all strategies are complete, and name what made them."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))  # as when the scripts are run
paper = import_module("record_paper")
strategies = import_module("record_strategies")
experiment = import_module("papers.heterbo_figures.experiment")
figures = import_module("papers.heterbo_figures.figures")
SERVE = ("h200", "cpu", "sim", "ribbon", "evaluations", "ablation", "bounds")
RECORDS = (
    *(paper.RECORD, paper.READINGS),
    *(strategies.RESULTS / f"{name}.json" for name in ("scavenger", "serverless", "guarantee", "ablations")),
    *(strategies.RESULTS / f"{name}.json" for name in ("strategies", "protocols", "economics")),
    *(strategies.RESULTS / f"serve-{bed}.json" for bed in SERVE),
)


def commits(record: dict[str, Any]) -> set[str]:
    """The commits that a record, or any part of it, says it was made of."""
    named = {commit for key in ("sources", "code", "verified") for commit in record.get(key, "").split(", ") if commit}
    return named.union(*(commits(part) for part in record.values() if isinstance(part, dict)))


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.stem)
def test_a_record_names_a_commit_of_this_repository(file: Path) -> None:
    named = commits(json.loads(file.read_text(encoding="utf-8")))
    assert named
    asked = ["git", "rev-parse", "--is-shallow-repository"]
    if subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() != "false":
        pytest.skip("no whole history to look in")
    for commit in named:
        git = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
        assert subprocess.run(git, cwd=ROOT, capture_output=True, check=False).returncode == 0, commit


def test_the_record_has_both_heterbos_in_every_figure_that_compares() -> None:
    entries = json.loads(paper.RECORD.read_text(encoding="utf-8"))["figures"]
    assert {entry["figure"] for entry in entries} == set(figures.FIGURES)
    for figure in ("7", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19"):
        words = " ".join(entry["what"] for entry in entries if entry["figure"] == figure)
        for ours in experiment.OURS:
            assert f"{ours}:" in words or f"{ours}," in words or f"{ours}'s" in words, (figure, ours)


def test_a_strategy_in_the_record_has_every_goal() -> None:
    lines = json.loads(strategies.RECORD.read_text(encoding="utf-8"))["summary"]
    assert len({strategies._key(line) for line in lines}) == len(lines)
    known = {(each.strategy, each.work.value) for each in strategies.ENTRANTS}
    for strategy, work in {(line["summary"]["strategy"], line["work"]) for line in lines}:
        assert (strategy, work) in known
        for bed in {line["bed"] for line in lines if line["summary"]["strategy"] == strategy}:
            for unseen in (False, True) if bed != strategies.SIM else (False,):
                of = strategies._of(lines, bed=bed, unseen=unseen, strategy=strategy, work=work)
                found = {(line["summary"]["goal"], line["parallel"]) for line in of}
                assert found in (set(), {(g.value, n) for g, n in strategies.CASES[strategies.Work(work)]}), (
                    bed,
                    strategy,
                )


def line(name: str, ratio: float, *, broken: int = 0, unseen: bool = False, **other: object) -> dict[str, Any]:
    figures = {
        "mean_ratio": ratio,
        "mean_ratio_done": ratio,
        "ratio_interval": (1.0, 13.0),
        "runs": 15,
        "violations": broken,
        "unfinished": 0,
        "mean_trials": 4.0,
    }
    summary = {"strategy": name, "goal": other.pop("goal", "budget"), **figures}
    rest = {"bed": "scout", "unseen": unseen, "work": "thrown", "parallel": 1, "code": "abc", "seeds": 3, **other}
    return {**rest, "hours": {"2": ratio + 1, "6": ratio}, "summary": summary}


def test_every_strategy_ahead_of_auto_is_listed_with_what_it_broke() -> None:
    lines = [
        line("auto", 1.204),
        line("convbo", 1.196, broken=8),
        line("random", 1.203),
        line("auto", 9.0, unseen=True),
    ]
    assert strategies.losses_table(lines).splitlines()[2:] == []
    lines[1]["summary"]["mean_ratio"] = 1.19
    (row,) = strategies.losses_table(lines).splitlines()[2:]
    assert row == (
        "| scout | budget | all | 1.20 (1.00 to 13.00) | 2 of 3 | `convbo` 1.19 (1.00 to 13.00) [8 broken of 15] |"
    )


def test_the_tables_say_the_lengths_what_was_asked_and_the_held_out_runs() -> None:
    held_out = line("auto", 1.5, unseen=True)
    (row,) = strategies.bed_table([line("auto", 1.25), held_out]).splitlines()[2:]
    assert row == (
        "| budget | `auto` | 3 | 1.25 (1.00 to 13.00) | 2.25 | 1.25 | - | 1.25 | 0 | 0 of 15 | 4.0 |"
        " 1.50 (1.00 to 13.00) | 15 |"
    )
    pooled = [{**held_out, "bed": "tables"}, line("heterbo", 1.7, unseen=True, bed="tables")]
    (row,) = strategies.goals_table(pooled).splitlines()[2:]
    assert "| thrown | budget | 3 | 1.50 (1.00 to 13.00) | 1.40 | 2.50 | 1.50 | - | 0 | 0 of 15 |" in row
    assert "| 1.70 (1.00 to 13.00) | - |" in row
    beside = line("auto", 1.2, unseen=True, bed="tables", work="beside", parallel=8, goal="fastest")
    (row,) = strategies.goals_table([beside]).splitlines()[2:]
    assert "| 1.10, 2 h: 1.18 |" in row


def made(name: str, *rows: dict[str, Any]) -> dict[str, Any]:
    return {name: strategies.Made(rows=list(rows), code="abc", cpu_seconds=1.0)}


def test_seeds_that_lack_a_workload_do_not_count() -> None:
    wanted = dict.fromkeys(
        ("scout/a/thrown/auto/0", "scout/b/thrown/auto/0", "scout/a/thrown/auto/1", "sim/c/thrown/auto/1")
    )
    done = made("scout/a/thrown/auto/0") | made("scout/b/thrown/auto/0") | made("sim/c/thrown/auto/1")
    assert set(strategies.whole_seeds(done, wanted)) == set(done)
    wanted |= {"scout/b/thrown/auto/1": None}
    assert set(strategies.whole_seeds(done | made("scout/a/thrown/auto/1"), wanted)) == set(done)


def test_tasks_come_seed_by_seed_and_rows_carry_what_the_tables_need(tmp_path: Path) -> None:
    (tmp_path / "scout").mkdir()
    (tmp_path / "scout" / "instances.csv").write_text("instance,usd_per_hour\na,0.1\nb,0.3\n")
    rows = "\n".join(f"{name},{n},{seconds / n**0.8}" for name, seconds in (("a", 9e4), ("b", 4e4)) for n in (1, 2, 4))
    for name in ("job", "work"):
        (tmp_path / "scout" / f"{name}.csv").write_text(f"instance,nodes,seconds\n{rows}\n")
    entrants = [strategies.Entrant(strategy="random:steps=2", work=strategies.Work.THROWN, seeds=2)]
    entrants += [strategies.Entrant(strategy="auto", work=strategies.Work.BESIDE, seeds=1)]
    wanted = dict(strategies.tasks(tmp_path, ["scout"], entrants))
    assert [name.split("/")[-1] for name in wanted] == ["0", "0", "0", "0", "1", "1"]
    found: dict[str, Any] = {}
    for name, arguments in wanted.items():
        found |= made(name, *strategies.rows_of(*arguments))
    entries = strategies.entries(found, pool=True)
    thrown = [e for e in entries if e.bed == "scout" and e.summary.strategy == "random:steps=2" and not e.unseen]
    assert {(e.summary.goal, e.parallel, tuple(e.hours)) for e in thrown} >= {
        ("fastest", 1, ("2", "6", "24")),
        ("fastest", 8, ("6",)),
        ("cheapest", 1, ("2", "6", "24")),
    }
    assert {e.seeds for e in thrown} == {2}
    assert {(e.work, e.parallel) for e in entries if e.summary.strategy == "auto"} == {("beside", 8), ("beside", 1)}
    assert {e.bed for e in strategies.entries(found, pool=False)} == {"scout"}


def test_tables_are_pooled_over_the_seeds_that_are_whole_on_each() -> None:
    row = {"workload": "w", "unseen": True, "strategy": "auto", "goal": "fastest", "hours": 2.0, "status": "done"}
    found: dict[str, Any] = {}
    for bed, seeds in (("scout", 2), ("multicloud", 1), ("trimtuner", 1)):
        for seed in range(seeds):
            of = {
                **row,
                "seed": seed,
                "ratio": 1.0,
                "parallel": 1,
                "work": "thrown",
                "total_seconds": None,
                "trials": 1,
            }
            found |= made(f"{bed}/w/thrown/auto/{seed}", of)
    runs = {(e.bed, e.unseen): e.summary.runs for e in strategies.entries(found, pool=True)}
    assert runs["scout", False] == 2
    assert runs["tables", True] == 3


def test_a_record_of_one_bed_keeps_the_lines_of_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(strategies, "RECORD", tmp_path / "strategies.json")
    monkeypatch.setattr(strategies, "FOLDER", tmp_path)
    gone = line("gone", 1.0, bed="multicloud")
    kept = line("random", 7.0, bed="multicloud")
    replaced = line("random", 9.0, bed="sim", goal="fastest")
    (tmp_path / "strategies.json").write_text(
        json.dumps({"summary": [gone, kept, replaced], "curves": {}, "changes": []})
    )
    workload = strategies.sim_workloads()[:1]
    monkeypatch.setattr(strategies, "sources", lambda _bed, _tables: workload)
    entrants = [strategies.Entrant(strategy="random", work=strategies.Work.THROWN, seeds=1)]
    strategies.record(tmp_path, ["sim"], entrants, jobs=1, minutes=None)
    found = json.loads((tmp_path / "strategies.json").read_text())["summary"]
    assert {(each["bed"], each["summary"]["strategy"]) for each in found} == {
        ("multicloud", "random"),
        ("sim", "random"),
    }
    assert strategies._of(found, bed="sim", goal="fastest", parallel=1)[0]["summary"]["mean_ratio"] != 9.0


def test_a_record_of_held_out_workloads_keeps_what_is_said_of_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(strategies, "RECORD", tmp_path / "strategies.json")
    monkeypatch.setattr(strategies, "FOLDER", tmp_path)
    before = [line("random", 9.0, unseen=unseen, goal="fastest") for unseen in (False, True)]
    (tmp_path / "strategies.json").write_text(json.dumps({"summary": before, "curves": {}, "changes": []}))
    (tmp_path / "scout").mkdir()
    (tmp_path / "scout" / "instances.csv").write_text("instance,usd_per_hour\na,0.1\n")
    names = [f"job{number}" for number in range(6)]
    for name in names:
        (tmp_path / "scout" / f"{name}.csv").write_text("instance,nodes,seconds\na,1,9000\na,2,5000\n")
    held_out = {name for name in names if strategies.is_unseen(name)}
    assert 0 < len(held_out) < len(names)
    entrants = [strategies.Entrant(strategy="random", work=strategies.Work.THROWN, seeds=1)]
    tasks = dict(strategies.tasks(tmp_path, ["scout"], entrants, held_out=True))
    assert {name.split("/")[1] for name in tasks} == held_out
    strategies.record(tmp_path, ["scout"], entrants, jobs=1, minutes=None, held_out=True)
    found = json.loads((tmp_path / "strategies.json").read_text())["summary"]
    (of_all,) = strategies._of(found, unseen=False, parallel=1)
    assert of_all["summary"]["mean_ratio"] == 9.0
    (apart,) = strategies._of(found, unseen=True, goal="fastest", parallel=1)
    assert apart["summary"]["mean_ratio"] < 9.0
    assert apart["summary"]["runs"] == len(held_out) * len(strategies.HOURS)


def test_an_ablation_is_compared_with_auto_in_the_same_runs() -> None:
    name = strategies.ABLATIONS[0]
    found: dict[str, Any] = {}
    for text, ratios in (("auto", (1.0, 1.2, 5.0)), (name, (1.5, 1.5))):
        for seed, ratio in enumerate(ratios):
            row = {"workload": "w", "unseen": True, "strategy": text, "goal": "fastest", "hours": 2.0, "seed": seed}
            row |= {"status": "done", "ratio": ratio, "parallel": 1}
            found |= made(f"scout/w/thrown/{text}/{seed}", row, {**row, "parallel": 8, "ratio": 9.0})
    every, held_out = strategies.changes(found)
    assert (every["unseen"], held_out["unseen"]) == (False, True)
    assert every["change"] == pytest.approx(0.4)
    assert (every["runs"], every["seeds"]) == (2, 2)
    rows = [{**every, "goal": goal} for goal in ("fastest", "cheapest", "budget", "both")]
    assert f"| `{name}` | 2 | all | +0.400 (" in strategies.ablations_table(rows)
