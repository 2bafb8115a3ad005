"""Several engines on one PostgreSQL server; engines and server are killed: nothing is lost, paid twice or run twice."""

import random
import signal
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from tests.clocks import FakeClocks
from tests.integration import kill_driver
from tests.integration.test_kill import DELAY, RealCloud, context, finish, launch, wait_for
from tests.postgres_server import Server
from tests.synthetic import driven, make_engine, make_problem, stored, timeless

from mlcd.clouds.provider import Lease, Order
from mlcd.errors import StoreError
from mlcd.goal import Goal, Objective
from mlcd.problem import TrialPolicy
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.store import postgres as postgres_module
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Failure, FailureKind
from mlcd.units import Usd


def launch_engine(home: Path, url: str, run_id: str) -> BaseProcess:
    process = context.Process(target=kill_driver.enter, args=(str(home), 2, DELAY, run_id, url))
    process.start()
    return process


def undisturbed(tmp_path: Path) -> SearchRun:
    """The same run, left alone with a store of its own."""
    assert finish(launch(tmp_path / "alone", 2)) == 0
    with Store(tmp_path / "alone", url="") as store:
        return stored(store, kill_driver.RUN)


def check_paid_once(store: Store, run_id: str, record: SearchRun) -> None:
    run = stored(store, run_id)
    assert run.status is Status.DONE
    assert timeless(run.steps) == timeless(record.steps), "as if nothing had been killed"
    assert (run.choice, run.total_usd, run.findings) == (record.choice, record.total_usd, record.findings)
    assert set(Counter((row.trial.config, row.trial.attempt) for row in run.trials).values()) == {1}
    assert not run.in_flight
    assert sum(step.role is Role.TRAINING for step in run.steps) == 1


@pytest.mark.parametrize(
    ("engines", "kills", "server_kills"),
    [(8, 6, 2), pytest.param(8, 60, 15, marks=pytest.mark.extra)],
)
def test_engines_and_the_server_are_killed_while_eight_work(
    engines: int, kills: int, server_kills: int, postgres: Server, team: str, tmp_path: Path
) -> None:
    record = undisturbed(tmp_path)
    rng = random.Random(f"team-{kills}")
    names = [f"engine-{number}" for number in range(engines)]
    live = {name: launch_engine(tmp_path / name, team, name) for name in names}
    seen: Counter[str] = Counter()
    rounds = 0
    while seen["engine"] < kills or seen["server"] < server_kills:
        time.sleep(rng.uniform(0.05, 0.4))
        if seen["server"] < server_kills and rng.random() < 0.3:
            postgres.kill()
            seen["server"] += 1
            time.sleep(rng.uniform(0, 0.5))
            postgres.start()
        name = rng.choice(names)
        live[name].kill()
        seen["engine" if finish(live[name]) == -signal.SIGKILL else "too late"] += 1
        if all(each.exitcode == 0 for each in live.values() if each is not live[name]):
            rounds += 1  # quicker than the kills: a further set of runs
            names = [f"engine-{rounds}-{number}" for number in range(engines)]
            live |= {each: launch_engine(tmp_path / each, team, each) for each in names}
        live[name] = launch_engine(tmp_path / name, team, name)
    for name, process in live.items():
        if finish(process) != 0:  # it began while the server was down, and said so
            said = [file.read_text() for file in (tmp_path / name).glob("error-*")]
            assert said
            assert all(each.startswith("Unreachable: ") for each in said)
            assert finish(launch_engine(tmp_path / name, team, name)) == 0
    with Store(tmp_path / "reader", url=team, reading=True) as store:
        assert len(store.runs()) == len(live)
        for name in live:
            check_paid_once(store, name, record)
            assert not store.is_live(name)


def test_the_lock_of_a_killed_engine_is_gone(team: str, tmp_path: Path) -> None:
    process = launch_engine(tmp_path, team, "r")
    with Store(tmp_path, url=team, reading=True) as store:
        wait_for(lambda: any(run.trials for run in store.runs()))
        assert store.is_live("r") or process.exitcode is not None
        process.kill()
        finish(process)
        assert finish(launch_engine(tmp_path, team, "r")) == 0
        assert stored(store, "r").status is Status.DONE


class ServerStops(RealCloud):
    """Real time and money; the server is stopped while the lease of this number is held."""

    def __init__(self, server: Server, at: int) -> None:
        super().__init__()
        self._server, self._at = server, at

    def lease(self, order: Order) -> Lease:
        found = super().lease(order)
        if len(self.leased) == self._at:
            self._server.stop()
        return found


def test_an_engine_that_cannot_write_starts_nothing_and_what_ran_is_settled_as_after_a_kill(
    postgres: Server, team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "RECONNECT_SECONDS", 0.3)
    clocks = FakeClocks()
    goal = Goal(minimize=Objective.COST, budget=Usd.of(60), deadline_seconds=100 * 3600)
    problem = make_problem(goal=goal, trial=TrialPolicy(retries=1), max_trials=6)
    cloud = ServerStops(postgres, 2)
    with Store(tmp_path, url=team) as store:
        try:
            with pytest.raises(StoreError, match="nothing new was started"):
                make_engine(problem, cloud, store, moments=clocks).drive()
        finally:
            postgres.start()
        assert len(cloud.leased) == 2, "nothing was started after the server had gone"
    with Store(tmp_path, url=team) as store:
        (flying,) = stored(store).in_flight
        assert flying.number == 2
        clocks.wait(50.0)
        record = driven(make_engine(problem, RealCloud(), store, add=False, moments=clocks), store)
    lost = record.trials[1].trial
    assert isinstance(lost, Failure)
    assert (lost.kind, lost.config) == (FailureKind.LOST, flying.authorisation.config)
    assert lost.seconds == pytest.approx(50.0)
    assert record.status is Status.DONE
