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
    *(strategies.RESULTS / f"{bed}.json" for bed in strategies.BEDS),
    *(strategies.RESULTS / f"serve-{bed}.json" for bed in SERVE),
)


def commits(record: dict[str, Any]) -> set[str]:
    """The commits that a record, or any part of it, says it was made of."""
    named = {record[key] for key in ("sources", "code") if key in record}
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


def test_the_strategies_record_has_every_strategy_under_every_goal() -> None:
    for bed in strategies.BEDS:
        result = json.loads((strategies.RESULTS / f"{bed}.json").read_text(encoding="utf-8"))
        cases = [(goal.value, parallel, names) for goal, parallel, names in strategies.CASES]
        found = [
            (case["summary"][0]["goal"], case["parallel"], tuple(s["strategy"] for s in case["summary"]))
            for case in result["records"]
        ]
        assert found == cases
        held_out = [len(case["summary_unseen"]) for case in result["records"]]
        assert held_out == [0 if bed == strategies.SIM else len(names) for _, _, names in cases]


def test_every_strategy_ahead_of_heterbo_is_listed_with_what_it_broke() -> None:
    def line(name: str, ratio: float, broken: int = 0) -> dict[str, object]:
        figures = {
            "mean_ratio": ratio,
            "ratio_interval": (1.0, 13.0),
            "runs": 15,
            "violations": broken,
            "unfinished": 0,
        }
        return {"strategy": name, "goal": "budget", **figures}

    case = {
        "parallel": 1,
        "summary": [line("heterbo", 1.204), line("convbo", 1.196, broken=8), line("random", 1.203)],
        "summary_unseen": [line("heterbo", 9.0), line("random", 12.0)],
    }
    rows = strategies.losses_table({"scout": {"records": [case]}}).splitlines()[2:]
    assert rows == []
    case["summary"][1]["mean_ratio"] = 1.19  # type: ignore[index]
    (row,) = strategies.losses_table({"scout": {"records": [case]}}).splitlines()[2:]
    assert row == (
        "| scout | budget | all | 1.20 (1.00 to 13.00) | 2 of 3 | `convbo` 1.19 (1.00 to 13.00) [8 broken of 15] |"
    )
