"""benchmarks/peers: what every library is told, what may be tried, and that each environment's adapter runs."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tests.synthetic import make_problem, measured

from mlcd.bench.case import GoalKind
from mlcd.bench.protocol import TrainProtocol
from mlcd.clouds.replay import ReplayInstance, ReplayWorkload
from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.problem import Problem
from mlcd.space import Config
from mlcd.testing.made import failed
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import FailureKind, History
from mlcd.units import Usd
from peers.peer import START, Peer, Rows, Told, nearest_row, told
from peers.run import PEERS, one_run, peer_class

ROOT = Path(__file__).resolve().parents[3]
D = Config.deployment


@dataclass(frozen=True, kw_only=True)
class First(Peer):
    """Suggests the first row that is allowed."""

    name: ClassVar[str] = "first"
    package: ClassVar[str] = "none"

    def ask(self, problem: Problem, told: list[Told], remaining: Remaining, rows: Rows) -> int:
        assert len(told) >= START
        return int(rows[0])


WORKLOAD = ReplayWorkload(
    name="job",
    seconds={D(name, n): base / n**0.8 for name, base in (("a", 9e4), ("b", 4e4)) for n in (1, 2, 4, 8)},
    instances={
        name: ReplayInstance(name=name, usd_per_hour=Usd.of(price)) for name, price in (("a", "0.1"), ("b", "0.3"))
    },
)


def test_a_peer_runs_through_the_engine_and_keeps_the_limits() -> None:
    for goal in GoalKind:
        row = one_run(First, WORKLOAD, goal, TrainProtocol(hours=2.0, budget_factor=3.0), steps=5, seed=0)
        assert row is not None
        assert row.status in ("done", "unfinished"), "never violated"
        assert row.trials <= 5
        assert row.strategy == "first:steps=5"


def test_a_peer_starts_quasi_random_and_ends_after_its_steps() -> None:
    problem = make_problem()
    remaining = Ledger(problem=problem, history=History()).remaining()
    history = History()
    while found := First(steps=6).suggest(problem, history, remaining, 3):
        (one,) = found
        assert one.config not in history.tried
        assert one.reason == ("a quasi-random start" if len(history) < START else "suggested by none")
        history = history.with_trials(measured(problem, one.config, 10.0))
    assert len(history) == 6


def test_what_a_peer_is_told() -> None:
    problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(20)), work_samples=1e5)
    small, big = D("c5.small", 1), D("c5.big", 1)
    good, slow = measured(problem, small, 50.0), measured(problem, big, 10.0)
    history = History((good, slow, failed(problem, D("c5.big", 2), FailureKind.ERROR)))
    remaining = Remaining(usd=Usd.of(1), seconds=None, allowed=np.ones(len(problem.space), dtype=bool))
    first, second, third = told(problem, history, remaining)
    plan = Plan.of(problem, slow)
    assert first.log_value == pytest.approx(np.log(Plan.of(problem, good).seconds))
    assert second.log_value == pytest.approx(np.log(plan.seconds))
    assert second.log_excess == pytest.approx(np.log(plan.worst_usd.dollars / 1))
    assert second.log_excess > 0 > first.log_excess
    assert second.log_penalised == second.log_value + second.log_excess
    assert first.log_penalised == first.log_value
    assert third.log_value == second.log_value, "a failure counts as the worst"


def test_without_limits_everything_fits() -> None:
    problem = make_problem()
    history = History((measured(problem, D("c5.small", 1), 50.0),))
    remaining = Ledger(problem=problem, history=history).remaining()
    assert told(problem, history, remaining)[0].log_excess == -np.inf


def test_a_suggestion_that_is_not_allowed_goes_to_the_nearest() -> None:
    problem = make_problem(counts=(1, 2, 4, 8, 16))

    def near(instance: str, nodes: int, *allowed: Config) -> Config:
        rows = np.array([problem.space.index[config] for config in allowed])
        return problem.space.configs[nearest_row(problem, rows, instance, nodes)]

    assert near("c5.small", 7, D("c5.small", 2), D("c5.small", 8), D("c5.big", 7 + 1)) == D("c5.small", 8)
    assert near("p2.one", 4, D("c5.small", 16), D("c5.small", 4)) == D("c5.small", 4)


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_has_its_adapter_and_its_environment(name: str) -> None:
    assert peer_class(name).name == name
    assert f"  {name}) packages=(" in (ROOT / "benchmarks" / "peers" / "setup").read_text(encoding="utf-8")


@pytest.mark.extra
@pytest.mark.parametrize("name", PEERS)
def test_an_adapter_runs_in_its_environment(name: str, tmp_path: Path) -> None:
    python = ROOT / ".venvs" / f"peers-{name}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"needs benchmarks/peers/setup {name}")
    for bed in ("scout", "multicloud", "trimtuner"):
        folder = tmp_path / bed
        folder.mkdir()
        (folder / "instances.csv").write_text("instance,usd_per_hour\na,0.1\nb,0.3\n")
        lines = [f"{c.instance},{c.nodes},{seconds}" for c, seconds in WORKLOAD.seconds.items()]
        (folder / "job.csv").write_text("\n".join(["instance,nodes,seconds", *lines]))
    record = tmp_path / "record.json"
    script = ROOT / "benchmarks" / "peers" / "run.py"
    options = f"--seeds 1 --steps 5 --beds scout --unseen all --goals fastest,budget --to {record}".split()
    subprocess.run([python, script, name, tmp_path, *options], check=True, timeout=600)
    found = json.loads(record.read_text())
    assert {row["status"] for row in found["rows"]} <= {"done", "unfinished"}
    assert max(row["trials"] for row in found["rows"]) > START, "the library was asked"
