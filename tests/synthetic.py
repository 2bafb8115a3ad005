"""A small world for tests: problems and a cloud with speeds known in closed form, nothing shared with the simulator."""

import math
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import ClassVar

from mlcd.clouds.provider import Cloud, Lease, LeaseFailed, Order, Progress, Purpose, Settled
from mlcd.engine import Engine
from mlcd.events import Observer, ignore
from mlcd.problem import Problem, TrialPolicy
from mlcd.search.registry import strategy
from mlcd.search.strategy import Strategy
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.testing.made import FASTEST, MACHINES, Machine, batched, failed, make_problem, measured, true_trial
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Left, Plan, best_fitting
from mlcd.trial.record import RunRecord
from mlcd.trial.trial import FailureKind, History, Suggestion

__all__ = ["FASTEST", "MACHINES", "Machine", "batched", "failed", "make_problem", "measured", "true_trial"]


class SyntheticCloud:
    """Answers with a machine's closed form; trials are off by log-normal noise keyed by (seed, config, attempt).

    Counts what is leased and what is released, so that tests can see a leak or a second payment.
    """

    name = "synthetic"

    def __init__(
        self,
        machines: Mapping[str, Machine] = MACHINES,
        *,
        noise: float = 0.0,
        seed: int = 0,
        step_seconds: float = 30.0,
        simulated: bool = True,
        work_samples: float = 2e6,
    ) -> None:
        self.work_samples = work_samples
        self.machines, self.noise, self.seed, self.step_seconds = dict(machines), noise, seed, step_seconds
        self.simulated = simulated
        self.leased: list[tuple[Config, int, Purpose]] = []
        self.released = 0
        self._lock = threading.Lock()

    def true_samples_per_second(self, config: Config) -> float | None:
        return self.machines[config.instance].samples_per_second(config.nodes)

    def startup_seconds(self, config: Config) -> float:
        return 40.0 + 2.0 * config.nodes

    def lease(self, order: Order) -> Lease:
        config, attempt, purpose = order.config, order.attempt, order.purpose
        with self._lock:
            self.leased.append((config, attempt, purpose))
        speed = self.true_samples_per_second(config)
        factor = math.exp(self.noise * random.Random(f"{self.seed}|{config}|{attempt}").gauss())
        if speed is not None and purpose is Purpose.TRIAL:
            speed *= factor
        # A real job ends by itself once its work is done.
        ends = not self.simulated and purpose is Purpose.RUN
        return SyntheticLease(self, speed, self.startup_seconds(config), self.work_samples if ends else math.inf)

    def trials_leased(self) -> list[tuple[Config, int]]:
        return [(config, attempt) for config, attempt, purpose in self.leased if purpose is Purpose.TRIAL]


class SyntheticLease:
    def __init__(
        self, cloud: SyntheticCloud, speed: float | None, startup_seconds: float, work_samples: float = math.inf
    ) -> None:
        self.cloud, self.speed, self.startup_seconds = cloud, speed, startup_seconds
        self.work_samples = work_samples

    def __enter__(self) -> "SyntheticLease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.cloud._lock:
            self.cloud.released += 1

    def finish(self, at: Progress) -> Settled:
        return Settled(seconds=at.seconds)

    def progress(self) -> Iterator[Progress]:
        if self.speed is None:
            raise LeaseFailed(FailureKind.OUT_OF_MEMORY, "out of memory", seconds=self.startup_seconds)
        trained = 0.0
        while trained * self.speed < self.work_samples:
            yield Progress(self.startup_seconds + trained, trained * self.speed)
            trained += self.cloud.step_seconds if trained < 3600 else trained / 8
        yield Progress(self.startup_seconds + self.work_samples / self.speed, self.work_samples)


@dataclass
class ScriptedLease:
    """A lease that plays the given points (seconds, samples), then fails, goes on for ever, or ends."""

    points: Sequence[tuple[float, float]]
    failure: LeaseFailed | None = None
    tail: Callable[[int], tuple[float, float]] | None = None
    released: int = 0

    def __enter__(self) -> "ScriptedLease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released += 1

    def finish(self, at: Progress) -> Settled:
        return Settled(seconds=at.seconds)

    def progress(self) -> Iterator[Progress]:
        for seconds, samples in self.points:
            yield Progress(seconds, samples)
        if self.failure is not None:
            raise self.failure
        step = 0
        while self.tail is not None:
            yield Progress(*self.tail(step))
            step += 1


@dataclass
class ScriptedCloud:
    """One lease for whatever is asked."""

    script: ScriptedLease | LeaseFailed
    noise: float = 0.0
    simulated: bool = True
    name: str = "scripted"
    asked: list[tuple[Config, int, Purpose]] = field(default_factory=list)

    def lease(self, order: Order) -> Lease:
        self.asked.append((order.config, order.attempt, order.purpose))
        if isinstance(self.script, LeaseFailed):
            raise self.script
        return self.script


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Tries a list in order, as far as it is allowed."""

    name: ClassVar[str] = "listed"
    configs: tuple[Config, ...]
    guarded: bool = True
    answer: Plan | None = None

    def suggest(self, problem: Problem, history: History, left: Left, count: int) -> tuple[Suggestion, ...]:
        rest = [c for c in self.configs if c not in history.tried and left.allowed[problem.space.index[c]]]
        return tuple(Suggestion(config=c, reason="listed") for c in rest[:count])

    def recommend(self, problem: Problem, history: History, left: Left) -> Plan | None:
        return self.answer or best_fitting(problem, history, left)

    def ending(self, problem: Problem, history: History, left: Left) -> str:
        return "the list is at its end"


def make_record(problem: Problem, cloud: Cloud, text: str, *, run_id: str, seed: int, parallel: int) -> RunRecord:
    """A run before its first trial."""
    return RunRecord(
        run_id=run_id,
        created="2026-08-01T12:00:00+00:00",
        cloud=cloud.name,
        simulated=cloud.simulated,
        strategy=text,
        seed=seed,
        parallel=parallel,
        version="test",
        catalog_date="2026-08-01",
        problem=problem,
        status=Status.RUNNING,
    )


def make_engine(
    problem: Problem,
    cloud: Cloud,
    store: Store,
    text: str = "heterbo",
    *,
    run_id: str = "run-1",
    seed: int = 0,
    parallel: int = 1,
    observer: Observer = ignore,
    naive: Sequence[tuple[str, Config]] = (),
    chosen: Strategy | None = None,
    add: bool = True,
) -> Engine:
    """An engine on a new run of `store` (with add=False on one that is there already)."""
    if add:
        record = make_record(problem, cloud, text, run_id=run_id, seed=seed, parallel=parallel)
        store.add_run(record, kind="train", spec={})
    return Engine(
        run_id=run_id,
        problem=problem,
        cloud=cloud,
        strategy=chosen or strategy(text, seed=seed),
        store=store,
        parallel=parallel,
        naive=naive,
        observer=observer,
    )


QUICK_TRIALS = TrialPolicy(seconds=300.0, extra_seconds_per_3_nodes=30.0, extension=0.5, watchdog_seconds=60.0)
