"""`search.work: beside` on this machine's nodes, from the command line: the training runs on while trials are made."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.toy_job import MAIN, SHARED_CPUS, Started, Toy, check_account, lines_of

from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Role, Step
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Failure, FailureKind

pytestmark = [
    pytest.mark.waits,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]
SEARCH = "noise: 0.02, assurance: 0.99, strategy: exhaustive, work: beside, restart_minutes: 0.05"
LONG_TRIAL = "minutes: 0.1, extension: 3, watchdog_minutes: 0.5, precision: 0.5, retries: 2"


def toy_with(folder: Path, speeds: dict[int, float]) -> Toy:
    return Toy(folder, speeds=speeds, program=SHARED_CPUS + MAIN)


def job(
    toy: Toy, *, nodes: str = "[1, 2]", samples: int = 12_000, budget: str = "", parallel: int = 1, **others: Any
) -> Path:
    search = f"{SEARCH}, parallel: {parallel}"
    return toy.job_file(search=search, nodes=nodes, samples=samples, budget=budget, **others)


def trainings(record: SearchRun) -> list[Step]:
    return [step for step in record.steps if step.role is Role.TRAINING]


def bases(toy: Toy) -> list[float]:
    return [json.loads((lease / "job.json").read_text())["base_samples"] for lease in toy.leases()]


def check_books(record: SearchRun, toy: Toy) -> None:
    check_account(record)
    for step in record.steps:
        assert step.outcome is not None
        assert step.outcome.usd == step.price.for_seconds(step.outcome.seconds) or step.role is Role.TRAINING
    assert toy.left_running() == []


def run_with_progress_beside_the_trial(toy: Toy, file: Path) -> Started:
    """A run to its end; the trial on two nodes makes no step before the training beside it has made some.

    Once it is decided where the training ends, it is quicker: there is enough of it for a slow trial.
    """
    toy.tell("wait-2")
    with toy.mlcd("train", file) as run:
        toy.until(run, lambda: any(map(toy.has_progressed, toy.leases()[1:])))
        toy.untell("wait-2")
        toy.until(run, lambda: toy.count("finals_started") == 2)
        toy.hurry()
        assert run.wait() == 0, run.said
    return run


def test_a_training_that_stays_keeps_its_nodes_from_round_to_round(tmp_path: Path) -> None:
    toy = toy_with(tmp_path, {1: 1000.0, 2: 900.0, 3: 800.0})
    run = run_with_progress_beside_the_trial(toy, job(toy, samples=40_000))
    record = toy.record()
    assert record.status is Status.DONE
    first, last = trainings(record)
    assert (first.final.ending, last.final.ending) == (Ending.CONTINUED, Ending.DONE)
    assert first.round == record.trials[1].round
    assert len(toy.leases()) == 3  # two trials and one training
    # The first trial is a part of the training; the one beside the training starts afresh, and is thrown away.
    kept = record.trials[0].trial.reached_samples
    assert kept > 0
    assert sorted(bases(toy)) == [0, 0, kept]
    (whole,) = record.attempts
    assert whole.seconds == pytest.approx(first.final.seconds + last.final.seconds)
    assert whole.usd == first.price.for_seconds(whole.seconds)
    assert kept < first.final.reached_samples < 40_000
    assert json.loads((Path(record.outputs) / "model.json").read_text()) == {"steps": 800}
    # The deadline is used once: search and training took less than their sum.
    assert record.total_seconds < record.search_seconds + whole.seconds
    check_books(record, toy)
    assert "of which beside the search" in run.said


def test_a_training_moves_through_its_checkpoint_where_a_trial_shows_that_it_pays(tmp_path: Path) -> None:
    toy = toy_with(tmp_path, {1: 400.0, 2: 1500.0})
    run_with_progress_beside_the_trial(toy, job(toy, samples=24_000))
    record = toy.record()
    moved, last = record.attempts
    assert (moved.ending, moved.config.nodes) == (Ending.MOVED, 1)
    assert (last.ending, last.config.nodes) == (Ending.DONE, 2)
    assert moved.reached_samples > 0
    assert bases(toy)[-1] == moved.reached_samples
    assert json.loads((Path(record.outputs) / "model.json").read_text()) == {"steps": 480}
    check_books(record, toy)


def test_trials_at_the_same_time_start_from_one_checkpoint_and_the_furthest_stays(tmp_path: Path) -> None:
    toy = toy_with(tmp_path, {1: 400.0, 2: 1500.0})
    run = toy.run("train", job(toy, parallel=2))
    assert run.wait() == 0, run.said
    record = toy.record()
    first, second = record.trials
    assert first.round == second.round == 1
    furthest = max(step.trial.reached_samples for step in record.trials)
    assert bases(toy) == [0, 0, furthest]
    assert furthest > 0
    assert json.loads((Path(record.outputs) / "model.json").read_text()) == {"steps": 240}
    check_books(record, toy)


def test_where_money_counts_each_trial_continues_the_training(tmp_path: Path) -> None:
    toy = toy_with(tmp_path, {1: 1000.0, 2: 900.0, 3: 800.0})
    file = job(toy, nodes="[1, 2, 3]", budget="30 USD")
    file.write_text(file.read_text().replace("minimize: time", "minimize: cost"))  # the budget alone is ample
    run = toy.run("train", file)
    assert run.wait() == 0, run.said
    record = toy.record()
    saved = [step.trial.reached_samples for step in record.trials]
    assert saved == sorted(saved)
    assert bases(toy) == [0, *saved]
    assert json.loads((Path(record.outputs) / "model.json").read_text()) == {"steps": 240}
    check_books(record, toy)


def test_a_run_killed_in_a_trial_that_is_part_of_the_training_loses_nothing_saved(tmp_path: Path) -> None:
    toy = toy_with(tmp_path, {1: 500.0, 2: 450.0})
    with toy.mlcd("train", job(toy, budget="30 USD", trial=LONG_TRIAL)) as run:
        toy.until(run, lambda: bool(list(toy.home.glob("work/*/leases/*/checkpoint/step-*/mlcd.json"))))
        run.kill()
    toy.until_nothing_runs()
    run = toy.run("resume", toy.run_id)
    assert run.wait() == 0, run.said
    record = toy.record()
    assert record.status is Status.DONE
    lost, again, *_ = (step.trial for step in record.trials)
    assert isinstance(lost, Failure)
    assert lost.kind is FailureKind.LOST
    assert 0 < lost.reached_samples < again.reached_samples
    assert bases(toy)[1] == lost.reached_samples
    check_books(record, toy)


@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_a_run_that_ends_beside_a_trial_is_resumed_from_the_checkpoint(tmp_path: Path, how: str) -> None:
    toy = toy_with(tmp_path, {1: 500.0, 2: 450.0})
    with toy.mlcd("train", job(toy, trial=LONG_TRIAL)) as run:
        toy.until(run, lambda: toy.count("finals_started") == 1)
        toy.until(run, lambda: len(toy.leases()) == 3 and all(map(toy.has_progressed, toy.leases()[1:])))
        (training,) = (lease for lease in toy.leases()[1:] if not (lease / "node-1").exists())
        toy.until(run, lambda: any("checkpoint" in line for line in lines_of(training / "progress.jsonl")))
        if how == "killed":
            run.kill()
        else:
            run.process.send_signal(signal.SIGINT)
            assert run.wait() == 130
    toy.until_nothing_runs()
    run = toy.run("resume", toy.run_id)
    assert run.wait() == 0, run.said
    record = toy.record()
    assert record.status is Status.DONE
    lost, *_, last = record.attempts
    assert lost.ending is (Ending.LOST if how == "killed" else Ending.INTERRUPTED)
    assert last.is_done
    assert lost.reached_samples > 0
    assert max(bases(toy)) > 0
    check_books(record, toy)
    shown = toy.run("show", record.run_id)
    assert shown.wait() == 0
