"""Killed at any instant: nothing paid is lost, nothing is paid twice, and the answer is the same."""

import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from tests.clocks import FakeClocks
from tests.integration import kill_driver
from tests.synthetic import SyntheticCloud, SyntheticLease, driven, make_engine, make_problem, stored, timeless

from mlcd.clouds.provider import JobProgress, Lease, Order
from mlcd.errors import Interrupted
from mlcd.goal import Goal, Objective
from mlcd.problem import TrialPolicy
from mlcd.run.run import AnyRun, SearchRun
from mlcd.run.step import Role, Step
from mlcd.store.store import FILE, Store
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Failure, FailureKind, Measurement
from mlcd.units import Usd

DELAY = 0.02
PATIENCE = 60.0  # how long to wait for a process before the test is given up; no assertion depends on it

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.integration.kill_driver"])


def launch(home: Path, parallel: int, *, delay: float = DELAY, run_id: str = kill_driver.RUN) -> BaseProcess:
    """A process that is past its imports and about to work."""
    process = context.Process(target=kill_driver.enter, args=(str(home), parallel, delay, run_id))
    process.start()
    wait_for(lambda: (home / f"ready-{process.pid}").exists() or process.exitcode is not None)
    return process


def wait_for(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.001)


def finish(process: BaseProcess) -> int | None:
    process.join(PATIENCE)
    code = process.exitcode
    if code is None:
        process.kill()
    return code


def ended_rows(home: Path) -> tuple[Step, ...]:
    run = only_run(home)
    return () if run is None else timeless(run.trials)


def ended_count(home: Path) -> int:
    """How many steps have ended, asked from outside; 0 while there is no store yet."""
    return _count(home, "SELECT count(*) FROM steps_ended")


def started_count(home: Path) -> int:
    """How many steps were started, asked from outside."""
    return _count(home, "SELECT count(*) FROM steps_started")


def _count(home: Path, query: str) -> int:
    try:
        with closing(sqlite3.connect(f"file:{home / FILE}?mode=ro", uri=True, timeout=10)) as db:
            return int(db.execute(query).fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def whole(home: Path) -> SearchRun:
    with Store(home) as store:
        return stored(store, kill_driver.RUN)


@pytest.fixture(scope="module", params=[1, 3], ids=["one-at-a-time", "three-at-once"])
def undisturbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[SearchRun, float]:
    """The run left alone, and how long it takes."""
    home = tmp_path_factory.mktemp("undisturbed")
    process = launch(home, request.param)
    start = time.monotonic()
    assert finish(process) == 0
    return whole(home), time.monotonic() - start


def check_same(home: Path, record: SearchRun) -> None:
    resumed = whole(home)
    assert resumed.status is record.status is Status.DONE
    assert resumed.choice == record.choice
    assert timeless(resumed.steps) == timeless(record.steps)
    assert resumed.search_usd == record.search_usd
    assert resumed.search_seconds == record.search_seconds
    assert resumed.final == record.final
    assert resumed.total_usd == record.total_usd
    assert resumed.stopped == record.stopped
    paid = Counter((row.trial.config, row.trial.attempt) for row in resumed.trials)
    assert set(paid.values()) == {1}
    with closing(sqlite3.connect(home / FILE)) as db:
        started = db.execute("SELECT count(*) FROM steps_started").fetchone()[0]
        finals = db.execute("SELECT count(*) FROM steps_started WHERE role = ?", (Role.TRAINING.value,)).fetchone()[0]
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert started == len(resumed.ended) == len(resumed.trials) + 1
    assert finals == 1


def test_the_run_is_worth_killing(undisturbed: tuple[SearchRun, float]) -> None:
    record, _ = undisturbed
    assert len(record.trials) >= 6
    assert record.history.failures
    assert record.final is not None


@pytest.mark.parametrize("kills", [4, pytest.param(25, marks=pytest.mark.extra)])
def test_killed_at_random_instants(kills: int, undisturbed: tuple[SearchRun, float], tmp_path: Path) -> None:
    record, duration = undisturbed
    rng = random.Random(f"kill-{record.parallel}")
    seen: Counter[str] = Counter()
    for attempt in range(5 * kills):  # a machine may be quicker than it was: kills that came too late do not count
        home = tmp_path / str(attempt)
        for _ in range(1 + (rng.random() < 0.4)):
            process = launch(home, record.parallel)
            time.sleep(rng.uniform(0, duration))
            process.kill()
            code = finish(process)
            seen["killed" if code == -signal.SIGKILL else "too late"] += 1
            before = ended_rows(home)
            seen["between the first and the last trial"] += 0 < len(before) < len(record.trials)
            assert before == timeless(row for row in record.trials if row.number in {r.number for r in before})
        assert finish(launch(home, record.parallel)) == 0
        check_same(home, record)
        if seen["killed"] >= kills and seen["between the first and the last trial"] >= kills / 3:
            return
    raise AssertionError(f"the kills did not land: {seen}")


# ---- `mlcd` itself

TRAIN = """\
name: killed
resources: {infra: sim/aws, instance_type: [c5.xlarge, c5.4xlarge, p2.xlarge, p3.2xlarge]}
job: {model: resnet152, samples: 50000, epochs: 8}
goal: {minimize: time, budget: 150 USD}
search: {strategy: heterbo, parallel: PARALLEL}
"""
SERVERLESS = """\
name: killed
resources: {infra: sim/lambda}
workload: {model: logistic, target_loss: 0.40, max_epochs: 20}
goal: {minimize: time, budget: 3 USD}
search: {strategy: mpc}
"""
JOBS = {
    "train": ("train", TRAIN.replace("PARALLEL", "1")),
    "train-parallel": ("train", TRAIN.replace("PARALLEL", "3")),
    "train-beside": ("train", TRAIN.replace("PARALLEL", "2, work: beside")),
    "train-kept": ("train", TRAIN.replace("PARALLEL", "1, work: kept")),
    "serverless": ("serverless", SERVERLESS),
}


MEAN_SECONDS = 0.01  # from the start of a step to the kill


def launch_mlcd(home: Path, *arguments: str) -> BaseProcess:
    process = context.Process(target=kill_driver.command, args=(str(home), list(arguments)))
    process.start()
    wait_for(lambda: (home / f"ready-{process.pid}").exists() or process.exitcode is not None)
    return process


def only_run(home: Path) -> AnyRun | None:
    """The run of a home; None before there is one."""
    if not (home / FILE).exists():
        return None
    with Store(home) as store:
        runs = store.runs()
        assert len(runs) <= 1
        return store.load(runs[0].run_id) if runs else None


def go_on_with(home: Path, kind: str, job: Path) -> BaseProcess:
    """As a user would: resume the run where there is one, else begin it."""
    run = only_run(home)
    return launch_mlcd(home, kind, str(job)) if run is None else launch_mlcd(home, "resume", run.run_id)


def answer(run: AnyRun) -> tuple[object, ...]:
    """All that was asked, paid and decided; without the run's name and the wall clock."""
    return run.status, run.problem, timeless(run.steps), run.verdict, run.findings, run.spent.micros, run.step_seconds


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.extra)])
def test_mlcd_killed_again_and_again_gives_the_same_answer(name: str, kills: int, tmp_path: Path) -> None:
    kind, text = JOBS[name]
    job = tmp_path / "job.yaml"
    job.write_text(text)
    process = launch_mlcd(tmp_path / "whole", kind, str(job))
    assert finish(process) == 0
    whole = only_run(tmp_path / "whole")
    assert whole is not None
    assert whole.status is Status.DONE
    rng = random.Random(f"{name}-{kills}")
    seen: Counter[str] = Counter()
    for attempt in range(10 * kills):  # only kills that met a run count, and some come too late
        home = tmp_path / str(attempt)
        for _ in range(rng.randint(1, 3)):
            process = go_on_with(home, kind, job)
            wait_until_started(home, rng.randint(1, len(whole.steps)), process)
            process.join(rng.expovariate(1 / MEAN_SECONDS))
            process.kill()
            process.join(PATIENCE)
            run = only_run(home)
            seen["killed in a run"] += process.exitcode == -signal.SIGKILL and run is not None
            seen["with a step in flight"] += run is not None and bool(run.in_flight)
        assert finish(go_on_with(home, kind, job)) == 0
        resumed = only_run(home)
        assert resumed is not None
        assert answer(resumed) == answer(whole)
        if seen["killed in a run"] >= kills and seen["with a step in flight"] >= kills / 10:
            return
    raise AssertionError(f"the kills did not land: {seen}")


def wait_until_started(home: Path, steps: int, process: BaseProcess) -> None:
    """Until so many steps are written, or the process has ended."""
    wait_for(lambda: started_count(home) >= steps or process.exitcode is not None)


def test_two_processes_on_one_home(tmp_path: Path) -> None:
    writers = [context.Process(target=kill_driver.write_many, args=(str(tmp_path), f"w{i}", 4)) for i in range(3)]
    for writer in writers:
        writer.start()
    assert [finish(writer) for writer in writers] == [0, 0, 0]
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    with Store(tmp_path) as store:
        runs = store.runs()
        assert len(runs) == 12
        assert {run.status for run in runs} == {Status.DONE}
        assert len({timeless(stored(store, run.run_id).trials) for run in runs}) == 1


def test_a_second_process_on_the_same_run_is_refused(tmp_path: Path) -> None:
    first = launch(tmp_path, 1, delay=0.25)
    wait_for(lambda: ended_count(tmp_path) > 0)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGSTOP)  # it is still at work, however slow this machine is
    second = launch(tmp_path, 1)
    assert finish(second) == 1
    os.kill(first.pid, signal.SIGCONT)
    assert (tmp_path / f"error-{second.pid}").read_text().startswith("RunBusy: run killed-run is in use")
    assert finish(first) == 0


def test_the_lock_of_a_killed_process_is_gone(tmp_path: Path) -> None:
    first = launch(tmp_path, 1, delay=0.05)
    wait_for(lambda: ended_count(tmp_path) > 0)
    first.kill()
    finish(first)
    assert finish(launch(tmp_path, 1)) == 0


def test_ctrl_c_ends_cleanly_and_resumes(undisturbed: tuple[SearchRun, float], tmp_path: Path) -> None:
    record, _ = undisturbed
    process = launch(tmp_path, record.parallel, delay=0.05)
    wait_for(lambda: ended_count(tmp_path) > 1)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    assert finish(process) == 130
    assert (
        (tmp_path / f"error-{process.pid}")
        .read_text()
        .startswith("Interrupted: interrupted; every step that has ended is kept")
    )
    assert whole(tmp_path).status is Status.INTERRUPTED
    assert 0 < len(ended_rows(tmp_path)) < len(record.trials)
    assert finish(launch(tmp_path, record.parallel)) == 0
    check_same(tmp_path, record)


class RealCloud(SyntheticCloud):
    """A stand-in for a cloud whose time and money are real: `interrupt_at` presses Ctrl-C in that lease."""

    def __init__(self, *, interrupt_at: int | None = None, dies: bool = False) -> None:
        super().__init__(simulated=False)
        self.interrupt_at, self.dies = interrupt_at, dies

    def lease(self, order: Order) -> Lease:
        lease = super().lease(order)
        assert isinstance(lease, SyntheticLease)
        if len(self.leased) == self.interrupt_at:
            return _Interrupting(self, lease.speed, lease.startup_seconds)
        return lease


class Killed(BaseException):
    """Ends the engine as a kill would: nothing of it gets to clean up in the store."""


class _Interrupting(SyntheticLease):
    def progress(self) -> Iterator[JobProgress]:
        yield JobProgress(1.0, 0.0)
        cloud = self.cloud
        assert isinstance(cloud, RealCloud)
        raise Killed if cloud.dies else KeyboardInterrupt


@pytest.mark.parametrize("dies", [True, False], ids=["killed", "ctrl-c"])
def test_a_real_trial_in_flight_is_charged_as_lost_and_tried_again(dies: bool, tmp_path: Path) -> None:
    clocks = FakeClocks()
    goal = Goal(minimize=Objective.COST, budget=Usd.of(60), deadline_seconds=100 * 3600)
    problem = make_problem(goal=goal, trial=TrialPolicy(retries=1), max_trials=6)
    with Store(tmp_path) as store:
        engine = make_engine(problem, RealCloud(interrupt_at=2, dies=dies), store, moments=clocks)
        with pytest.raises(Killed if dies else Interrupted):
            engine.drive()
        if dies:
            (flying,) = stored(store).in_flight
            config = flying.authorisation.config
            clocks.wait(123.4)
        else:
            assert stored(store).in_flight == ()
            config = stored(store).trials[1].trial.config
        cloud = RealCloud()
        record = driven(make_engine(problem, cloud, store, add=False, moments=clocks), store)
    lost = record.trials[1].trial
    seconds = 123.4 if dies else 0.0
    assert isinstance(lost, Failure)
    assert (lost.kind, lost.config, lost.attempt) == (FailureKind.LOST if dies else FailureKind.STOPPED, config, 1)
    assert lost.seconds == pytest.approx(seconds)
    assert lost.usd == problem.price(config).for_seconds(lost.seconds)
    again = record.trials[2].trial
    assert isinstance(again, Measurement)
    assert (again.config, again.attempt) == (config, 2)
    assert (config, 1) not in cloud.trials_leased()
    assert record.status is Status.DONE


def test_a_lost_trial_is_never_charged_more_than_was_authorised(tmp_path: Path) -> None:
    clocks = FakeClocks()
    problem = make_problem(goal=Goal(minimize=Objective.COST, budget=Usd.of(60)), max_trials=3)
    with Store(tmp_path) as store:
        with pytest.raises(Killed):
            make_engine(problem, RealCloud(interrupt_at=1, dies=True), store, moments=clocks).drive()
        (flying,) = stored(store).in_flight
        clocks.wait(10 * 24 * 3600)
        record = driven(make_engine(problem, RealCloud(), store, add=False, moments=clocks), store)
    assert record.trials[0].trial.usd == flying.authorisation.usd
    assert record.trials[0].trial.seconds == flying.authorisation.seconds


def test_downtime_counts_against_a_real_deadline(tmp_path: Path) -> None:
    clocks = FakeClocks()
    problem = make_problem(goal=Goal(minimize=Objective.TIME, deadline_seconds=30 * 3600), max_trials=4)
    with Store(tmp_path) as store:
        with pytest.raises(Killed):
            make_engine(problem, RealCloud(interrupt_at=3, dies=True), store, moments=clocks).drive()
        clocks.wait(31 * 3600)
        record = driven(make_engine(problem, RealCloud(), store, add=False, moments=clocks), store)
    assert record.status is Status.NOTHING_FITS
    assert record.final is None
    assert len(record.trials) == 3
    assert record.relaxations
