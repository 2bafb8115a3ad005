"""A watched training on this machine's nodes, from the command line: it moves if it is too slow, and else stays.

Two nodes are faster, one is cheaper. Two runs may differ by 30%, so that the budget is well above what two nodes are
expected to cost and well below their upper bound, however long this machine takes to start a process.
"""

import sys
from pathlib import Path

import pytest
from tests.toy_job import MAIN, SHARED_CPUS, Started, Toy, check_account, lines_of

from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Role, Step
from mlcd.trial.outcome import Status

pytestmark = [
    pytest.mark.waits,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]
WATCHED = """\
from mlcd.search.exhaustive import Exhaustive
Exhaustive.guarded = Exhaustive.watched = True
"""
"""Before mlcd's program: `exhaustive` keeps the limits and its trainings are watched, as those of `auto` are."""
HURRY = 0.02


def toy_of(folder: Path, work: str) -> tuple[Toy, Path]:
    """100 s on two nodes cost $2, 125 s on one $1.25; the upper bounds are twice that. Trials cost up to $0.80."""
    toy = Toy(folder, speeds={1: 400.0, 2: 500.0}, program=SHARED_CPUS + WATCHED + MAIN)
    search = f"noise: 0.3, assurance: 0.99, strategy: exhaustive, work: {work}"
    if work != "thrown":
        search += ", restart_minutes: 0.05"
    return toy, toy.job_file(samples=50_000, budget="3.9 USD", search=search)


def first_training(toy: Toy, run: Started) -> Step:
    """The training's first step, as soon as it has started."""
    toy.until(run, lambda: toy.count("finals_started") >= 1)
    return next(step for step in toy.record().steps if step.role is Role.TRAINING)


def check_watched(record: SearchRun, step: Step) -> None:
    assert step.config.nodes == 2
    assert step.watch is not None
    assert step.watch.fallback is not None
    assert step.watch.fallback.config.nodes == 1
    assert record.problem.goal.budget is not None
    before = sum(s.outcome.usd.micros for s in record.steps if s.number < step.number and s.outcome is not None)
    needed = before + step.watch.usd.micros + step.watch.fallback.worst_usd.micros
    assert needed <= record.problem.goal.budget.micros, "the look and the fallback were within the budget"


@pytest.mark.parametrize("work", ["thrown", pytest.param("beside", marks=pytest.mark.extra)])
def test_a_training_that_turns_out_too_slow_moves_to_its_fallback_inside_the_budget(tmp_path: Path, work: str) -> None:
    toy, file = toy_of(tmp_path, work)
    with toy.mlcd("train", file) as run:
        started = first_training(toy, run)
        toy.tell("slow-2", 5.0)
        toy.until(run, lambda: toy.count("finals_started") >= 2)
        toy.tell("slow-1", HURRY)
        assert run.wait() == 0, run.said
    record = toy.record()
    check_watched(record, started)
    moved, done = record.attempts
    assert (moved.config.nodes, moved.ending) == (2, Ending.MOVED)
    assert (done.config.nodes, done.ending) == (1, Ending.DONE)
    assert moved.next_plan is not None
    assert moved.next_plan.config.nodes == 1
    assert record.status is Status.DONE
    check_account(record)
    assert toy.left_running() == []


@pytest.mark.parametrize("work", ["kept", pytest.param("beside", marks=pytest.mark.extra)])
def test_a_training_that_is_fast_enough_stays(tmp_path: Path, work: str) -> None:
    toy, file = toy_of(tmp_path, work)
    with toy.mlcd("train", file) as run:
        started = first_training(toy, run)
        assert started.watch is not None
        look = started.started_at + started.watch.seconds
        lease = toy.await_training(run)
        toy.until(run, lambda: any(line["time"] > look for line in lines_of(lease / "progress.jsonl")))
        toy.tell("slow-2", HURRY)
        assert run.wait() == 0, run.said
    record = toy.record()
    check_watched(record, started)
    assert [(attempt.config.nodes, attempt.ending) for attempt in record.attempts] == [(2, Ending.DONE)]
    assert record.status is Status.DONE
    check_account(record)
    if work == "beside":  # the search ends after the look
        assert record.verdict is not None
        assert record.verdict.watch is None
        return
    assert "Expected to fit (" in run.said
    assert "it moves to 1 x local.1, whose upper bound fits" in " ".join(run.said.split())
