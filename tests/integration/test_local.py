"""`mlcd train` on this machine, from the command line to the outputs, with a job that takes seconds."""

import json
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.toy_job import Toy, check_account, lines_of
from tests.unmeasured import UNMEASURED

from mlcd.clouds import processes
from mlcd.clouds.control_groups import tracking_parents
from mlcd.clouds.local import usable_cpus
from mlcd.platforms.agent import NOTES_FILE
from mlcd.run.attempt import Ending
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Failure, FailureKind, Measurement
from mlcd.units import Usd

pytestmark = [
    pytest.mark.waits,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]


SPEEDS = {1: 250.0, 2: 1250.0}
"""Two nodes are chosen even where a busy machine holds them up."""


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path, speeds=SPEEDS)


@dataclass(frozen=True)
class Undisturbed:
    """A run to its end, for the tests that only look at it."""

    toy: Toy
    said: str


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    toy = Toy(tmp_path_factory.mktemp("undisturbed"), speeds=SPEEDS)
    run = toy.run("train", toy.job_file())
    assert run.wait() == 0, run.said
    return Undisturbed(toy, run.said)


@pytest.mark.together("an undisturbed run")
def test_searches_trains_and_fetches_the_model(undisturbed: Undisturbed) -> None:
    toy, said = undisturbed.toy, undisturbed.said
    record = toy.record()
    assert record.status is Status.DONE
    assert len(record.history.measured) == 2
    assert record.choice is not None
    assert record.choice.config.nodes == 2
    assert json.loads((Path(record.outputs) / "model.json").read_text()) == {"steps": 160}
    check_account(record)
    assert "Receipt" in said
    assert "Outputs:" in said
    assert toy.left_running() == []
    # Every lease's logs are kept, the copies of the user's files are not.
    assert all((lease / "node-0" / "log.txt").read_text() for lease in toy.leases())
    assert not list(toy.home.glob("work/*/leases/*/workdir"))
    shown = toy.run("show", record.run_id)
    assert shown.wait() == 0
    assert "The trials did" in shown.said


@pytest.mark.together("an undisturbed run")
def test_the_work_of_trials_counts_for_the_training(undisturbed: Undisturbed) -> None:
    toy = undisturbed.toy
    first, second, last = toy.leases()
    assert json.loads((first / "job.json").read_text())["base_samples"] == 0
    for before, after in ((first, second), (second, last)):
        assert json.loads((after / "job.json").read_text())["base_samples"] == toy.samples(before) > 0
    assert 8000 <= toy.processed() <= 1.1 * 8000
    record = toy.record()
    assert [t.reached_samples for t in record.history] == [toy.samples(first), toy.samples(second)]
    assert record.final is not None
    assert record.final.reached_samples == 8000


@pytest.mark.extra
def test_a_trial_without_free_cpus_is_retried(toy: Toy) -> None:
    if len(usable_cpus()) != 2:
        pytest.skip("made for a machine with two processors")
    search = "noise: 0.02, assurance: 0.99, parallel: 2, strategy: exhaustive"
    assert toy.run("train", toy.job_file(search=search)).wait() == 0
    record = toy.record()
    assert {t.config.nodes for t in record.history.measured} == {1, 2}
    (refused,) = record.history.failures
    assert (refused.kind, refused.usd) == (FailureKind.LAUNCH, Usd(0))
    assert "1 of this machine's 2 are free" in refused.message or "0 of this machine's 2 are free" in refused.message


@pytest.mark.extra
def test_without_checkpoints_every_lease_starts_from_the_beginning(toy: Toy) -> None:
    assert toy.run("train", toy.job_file(checkpoints=False, samples=4000)).wait() == 0
    assert [json.loads((lease / "job.json").read_text())["base_samples"] for lease in toy.leases()] == [0, 0, 0]
    assert toy.samples(toy.newest()) == 4000


@pytest.mark.parametrize("where", ["trial", "training"])
def test_a_killed_run_leaves_nothing_running_and_can_be_resumed(toy: Toy, where: str) -> None:
    with toy.mlcd("train", toy.job_file(samples=20_000)) as run:
        lease = toy.await_trial(run, 2) if where == "trial" else toy.await_training(run)
        toy.until(run, lambda: bool(list((lease / "checkpoint").glob("step-*/mlcd.json"))))
        finished = toy.count("trials_ended")
        run.kill()
    toy.until_nothing_runs()
    toy.hurry()
    down = toy.run("down", "--on", "local", "-y")
    assert down.wait() == 0
    assert "Nothing that mlcd started" in down.said
    before = toy.record()
    assert before.status is Status.RUNNING

    run = toy.run("resume", toy.run_id)
    assert run.wait() == 0, run.said
    record = toy.record()
    assert record.trials[:finished] == before.trials  # not run again
    check_account(record)
    saved = json.loads((toy.leases()[finished + 1] / "job.json").read_text())["base_samples"]
    assert saved > 0
    if where == "trial":
        lost = record.trials[1].trial
        assert isinstance(lost, Failure)
        assert lost.kind is FailureKind.LOST
        assert lost.message == "mlcd ended before the trial did"
        assert lost.usd > Usd(0)
        assert lost.reached_samples == saved
    else:
        (gone,) = record.earlier
        assert gone.ending is Ending.LOST
        assert gone.usd > Usd(0)
        assert gone.reached_samples == saved
    assert (Path(record.outputs) / "model.json").exists()
    assert toy.left_running() == []


WITHOUT_GROUPS = """\
import mlcd.clouds.control_groups as groups
groups.tracking_parents = tuple
from mlcd.cli.main import main
main()
"""
DAEMON = """\
import subprocess
subprocess.run("cd / && (setsid env -i sleep 86400.{mark} > /dev/null 2>&1 < /dev/null &)", shell=True)
"""


@pytest.mark.parametrize("groups", [True, pytest.param(False, marks=pytest.mark.extra)])
def test_a_daemon_without_an_environment_is_found_when_mlcd_and_agents_are_killed_at_once(
    toy: Toy, groups: bool
) -> None:
    if not groups:
        toy.program = WITHOUT_GROUPS
    elif not tracking_parents():
        pytest.skip("no control groups can be created here")
    script = toy.folder / "code" / "train.py"
    script.write_text(DAEMON.format(mark=os.getpid()) + script.read_text())

    def daemons() -> list[int]:
        return [pid for pid in processes.all_pids() if processes.command_of(pid) == f"sleep 86400.{os.getpid()}"]

    with toy.mlcd("train", toy.job_file(nodes="1", trial="minutes: 0.5")) as run:
        lease = toy.await_trial(run)
        if not groups:
            notes = lease / "node-0" / NOTES_FILE
            toy.until(run, lambda: notes.exists() and str(daemons()[0]) in notes.read_text())
        for pid in (*toy.agents(lease), run.process.pid):
            os.kill(pid, signal.SIGKILL)
    (daemon,) = daemons()
    down = toy.run("down", "--on", "local", "-y")
    if groups:
        assert down.wait() == 0, down.said
        assert daemons() == []
    else:
        assert down.wait() == 1, down.said
        assert f"May belong to {toy.run_id}: pid {daemon} (sleep 86400.{os.getpid()})" in down.said
        assert daemons() == [daemon]
        os.kill(daemon, signal.SIGKILL)
        toy.until(None, lambda: daemons() == [])
    again = toy.run("down", "--on", "local", "-y")
    assert again.wait() == 0
    assert "Nothing that mlcd started" in again.said


def test_ctrl_c_releases_and_can_be_resumed(toy: Toy) -> None:
    toy = replace(toy, env={**toy.env, **UNMEASURED})
    with toy.mlcd("train", toy.job_file(samples=20_000)) as run:
        toy.await_training(run)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    assert toy.left_running() == []
    assert f"mlcd resume {toy.run_id}" in run.said
    assert "Traceback" not in run.said
    toy.hurry()
    assert toy.run("resume", toy.run_id).wait() == 0
    check_account(toy.record())


def test_a_training_that_slows_down_is_moved_before_the_budget_breaks(toy: Toy) -> None:
    # At a fiftieth of its speed, the budget pays for 5,000 samples on two nodes. A slow machine does more than 1,500
    # before the training is told to slow down, but not 15,000.
    with toy.mlcd("train", toy.job_file(samples=20_000, budget="4 USD")) as run:
        toy.await_training(run)
        toy.tell("slow-2", 50)
        toy.until(run, lambda: toy.count("finals_ended") == 1)
        toy.hurry()
        assert run.wait() == 0, run.said
    record = toy.record()
    (moved,) = record.earlier
    assert moved.ending is Ending.MOVED
    assert moved.config.nodes == 2
    assert "continues on 1 x local.1" in moved.message
    assert record.final is not None
    assert record.final.config.nodes == 1
    assert record.total_usd <= Usd.of("4")
    check_account(record)
    assert "moved" in run.said
    assert 20_000 <= toy.processed() <= 1.1 * 20_000


@pytest.mark.parametrize("stubborn", [pytest.param(False, marks=pytest.mark.extra), True])
def test_a_training_that_slows_down_is_stopped_before_the_budget_breaks(toy: Toy, stubborn: bool) -> None:
    toy = replace(toy, speeds={1: 500.0})
    trial = "minutes: 0.03, extension: 4, watchdog_minutes: 0.1, precision: 0.5, retries: 2"
    job = toy.job_file(samples=3000, nodes="1", budget="0.40 USD", trial=trial)
    with toy.mlcd("train", job) as run:
        toy.until(run, lambda: toy.count("trials_ended") == 1)
        if stubborn:  # during the training, the job ignores both the stop file and SIGTERM
            toy.tell("stubborn")
        toy.tell("slow-1", 20)
        assert run.wait() == 5, run.said
    record = toy.record()
    assert record.final is not None
    assert record.final.ending is Ending.STOPPED
    assert record.total_usd <= Usd.of("0.40")
    assert "stopped before it would cost more than the budget" in run.said
    assert "falls behind" in run.said
    assert toy.left_running() == []
    if not stubborn:
        assert record.final.reached_samples == toy.samples(toy.newest())


@pytest.mark.extra
def test_a_deadline_at_risk_is_reported_in_time(toy: Toy) -> None:
    toy = replace(toy, speeds={1: 500.0})
    with toy.mlcd("train", toy.job_file(samples=5600, nodes="1", budget="9 USD", deadline="25 s")) as run:
        toy.await_training(run)
        toy.tell("slow-1", 4)
        toy.until(run, lambda: "falls behind" in run.said)
        assert toy.count("finals_ended") == 0  # while it still runs
        toy.untell("slow-1")
        toy.tell("slow-1", 2.5)
        assert run.wait() == 5, run.said
    record = toy.record()
    assert record.status is Status.OVERRAN
    assert record.final is not None
    assert record.final.ending is Ending.DONE  # a nearly finished training is completed
    assert "deadline" in run.said


def test_a_training_whose_worker_dies_restarts_from_its_checkpoint(toy: Toy) -> None:
    with toy.mlcd("train", toy.job_file(samples=20_000)) as run:
        lease = toy.await_training(run)
        toy.until(run, lambda: any("checkpoint" in line for line in lines_of(lease / "progress.jsonl")))
        os.kill(toy.workers(lease)[0], signal.SIGKILL)
        toy.until(run, lambda: toy.count("finals_ended") == 1)
        toy.hurry()
        assert run.wait() == 0, run.said
    record = toy.record()
    (gone,) = record.earlier
    assert gone.ending is Ending.RESTARTED
    assert "SIGKILL" in gone.message
    saved = [line["checkpoint"] for line in lines_of(lease / "progress.jsonl") if "checkpoint" in line]
    assert json.loads((toy.newest() / "job.json").read_text())["base_samples"] == max(saved)
    # The other worker may have saved once more while the nodes were released.
    assert gone.reached_samples in saved
    assert gone.reached_samples > record.trials[-1].trial.reached_samples
    check_account(record)


@pytest.mark.extra
def test_a_training_that_hangs_is_restarted(toy: Toy) -> None:
    with toy.mlcd("train", toy.job_file(trial="minutes: 0.1, watchdog_minutes: 0.1, precision: 0.5")) as run:
        toy.await_training(run)
        toy.tell("hang")
        toy.until(run, lambda: toy.count("finals_ended") == 1)
        toy.untell("hang")
        assert run.wait() == 0, run.said
    (hung,) = toy.record().earlier
    assert hung.ending is Ending.RESTARTED
    assert "no progress for" in hung.message
    check_account(toy.record())


@pytest.mark.parametrize(
    ("what", "kind", "says"),
    [
        ("out-of-memory", FailureKind.OUT_OF_MEMORY, "made: no room for the next batch"),
        ("hang", FailureKind.HANG, "no progress for"),
    ],
)
def test_a_failing_trial_is_recorded_with_its_kind_of_failure(
    toy: Toy, what: str, kind: FailureKind, says: str
) -> None:
    long_enough = "minutes: 5, watchdog_minutes: 0.1"
    with toy.mlcd("train", toy.job_file(nodes="1", samples=100_000, trial=long_enough)) as run:
        toy.await_trial(run)
        toy.tell(what)
        assert run.wait() == 6, run.said
    (row,) = toy.record().trials
    assert isinstance(row.trial, Failure)
    assert row.trial.kind is kind
    assert says in row.trial.message
    assert says in run.said
    assert toy.left_running() == []


@pytest.mark.extra
@pytest.mark.measures
def test_the_speed_measured_is_the_jobs(undisturbed: Undisturbed) -> None:
    toy = undisturbed.toy
    by_nodes = {t.config.nodes: t for t in toy.record().history if isinstance(t, Measurement)}
    for nodes, speed in toy.speeds.items():
        assert by_nodes[nodes].samples_per_second == pytest.approx(speed, rel=0.15)
