"""benchmarks/losses.py: the parts of a ratio, and a model that knows the speeds."""

import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcd.bench.case import GoalKind
from mlcd.bench.protocol import TrainProtocol, Work
from mlcd.bench.workloads import case_of, table_workloads
from mlcd.clouds.replay import ReplayWorkload
from mlcd.trial.trial import History

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))  # as when the script is run
losses = import_module("losses")


@pytest.fixture
def workload(tmp_path: Path) -> ReplayWorkload:
    """Two types, up to eight nodes; b is faster, and does not run on one node."""
    (tmp_path / "instances.csv").write_text("instance,usd_per_hour\na,0.1\nb,0.3\n")
    rows = [f"{name},{n},{seconds / n**0.8},ok" for name, seconds in (("a", 9e4), ("b", 4e4)) for n in (1, 2, 4, 8)]
    rows[4] = "b,1,60,failed"
    (tmp_path / "job.csv").write_text("instance,nodes,seconds,status\n" + "\n".join(rows) + "\n")
    return table_workloads(tmp_path)["job"]


@pytest.mark.parametrize("goal", [GoalKind.FASTEST, GoalKind.CHEAPEST])
def test_the_parts_of_a_thrown_run_are_its_ratio(workload: ReplayWorkload, goal: GoalKind) -> None:
    found = losses.loss(losses.VARIANTS[0], workload, Work.THROWN, goal, 6.0)
    assert found.finished
    assert 1 + found.trials + found.choice + found.missed == pytest.approx(found.ratio)
    assert min(found.trials, found.missed) >= 0


def test_a_model_that_knows_more_needs_fewer_trials(workload: ReplayWorkload) -> None:
    variant = replace(losses.VARIANTS[0], error=0.001)
    found = losses.loss(variant, workload, Work.THROWN, GoalKind.FASTEST, 6.0)
    assert found.number == 1
    assert found.missed == pytest.approx(0.0)
    own = losses.loss(losses.VARIANTS[0], workload, Work.THROWN, GoalKind.FASTEST, 6.0)
    assert own.number > found.number


def test_the_model_knows_what_runs_and_what_was_measured(workload: ReplayWorkload) -> None:
    truth, _ = case_of(workload, TrainProtocol(hours=6.0), seed=1)
    model = losses.informed_model(truth, 0.1, seed=1)(truth.problem, History(()))
    runs = np.array([seconds is not None for seconds in truth.seconds])
    assert (np.exp(model.log_seconds[0][~runs]) > losses.NEVER_SECONDS / 10).all()
    error = model.log_seconds[0][runs] - np.log([s for s in truth.seconds if s is not None])
    assert 0.01 < np.abs(error).mean() < 0.3


def test_the_tables_say_what_was_run_and_the_parts_of_auto() -> None:
    def run(variant: str, ratio: float, **other: Any) -> Any:
        given = {"work": "thrown", "goal": "budget", "hours": 2.0, "finished": ratio < 3, "number": 4, "trials": 0.3}
        return losses.Loss(variant=variant, ratio=ratio, choice=0.1, missed=None, **{**given, **other})

    lines = losses.summary([run("`auto`", 1.5), run("`auto`", 3.0), run("`auto`", 1.2, hours=6.0)])
    assert "| thrown | budget | 3 | 1.90 | 0.30 | 0.10 | 0.00 | 1 | 4.0 |" in losses.parts_table(lines)
    table = losses.knowledge_table(lines)
    assert "| `auto` | - | - | 1.90 (2.25) | - | - |" in table
    assert losses.VARIANTS[1].words not in table
