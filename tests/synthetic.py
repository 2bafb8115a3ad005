"""A small world for tests: problems and a cloud with speeds known in closed form, nothing shared with the simulator."""

import math
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import ClassVar, cast

from mlcd.clouds.provider import Cloud, JobProgress, Lease, LeaseFailed, Order, Purpose, Settled
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.engine import Engine
from mlcd.engine.clock import Moments, read_moment
from mlcd.engine.on_nodes import NodePerformer
from mlcd.events import Observer, ignore
from mlcd.problem import Problem, TrialPolicy
from mlcd.run.header import Header
from mlcd.run.kind import Kind
from mlcd.run.run import Run, SearchRun
from mlcd.run.step import Step
from mlcd.search.registry import strategy
from mlcd.search.strategy import Elastic, Strategy
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.testing.made import FASTEST, MACHINES, Machine, batched, failed, make_problem, measured, true_trial
from mlcd.trial.plan import Plan, Remaining, best_fitting
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

    def finish(self, at: JobProgress) -> Settled:
        return Settled(seconds=at.seconds)

    def progress(self) -> Iterator[JobProgress]:
        if self.speed is None:
            raise LeaseFailed(FailureKind.OUT_OF_MEMORY, "out of memory", seconds=self.startup_seconds)
        trained = 0.0
        while trained * self.speed < self.work_samples:
            yield JobProgress(self.startup_seconds + trained, trained * self.speed)
            trained += self.cloud.step_seconds if trained < 3600 else trained / 8
        yield JobProgress(self.startup_seconds + self.work_samples / self.speed, self.work_samples)


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

    def finish(self, at: JobProgress) -> Settled:
        return Settled(seconds=at.seconds)

    def progress(self) -> Iterator[JobProgress]:
        for seconds, samples in self.points:
            yield JobProgress(seconds, samples)
        if self.failure is not None:
            raise self.failure
        step = 0
        while self.tail is not None:
            yield JobProgress(*self.tail(step))
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
    """Tries a list in order, as far as it is allowed, at most `at_once` in a round."""

    name: ClassVar[str] = "listed"
    configs: tuple[Config, ...]
    guarded: bool = True
    answer: Plan | None = None
    at_once: int | None = None

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        rest = [c for c in self.configs if c not in history.tried and remaining.allowed[problem.space.index[c]]]
        return tuple(Suggestion(config=c, reason="listed") for c in rest[:count][: self.at_once])

    def recommend(self, problem: Problem, history: History, remaining: Remaining) -> Plan | None:
        return self.answer or best_fitting(problem, history, remaining)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        return "the list is at its end"


class OneFirst(Listed):
    """The first of the list, and the others only beside a training: under a budget, it waits for what comes before."""

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        found = super().suggest(problem, history, remaining, count)
        return found if not history.tried or remaining.training is not None else ()


def make_run(problem: Problem, cloud: Cloud, text: str, *, run_id: str, seed: int = 0, parallel: int = 1) -> SearchRun:
    """A run before its first step."""
    return Run(
        header=Header(
            run_id=run_id,
            created="2026-08-01T12:00:00+00:00",
            kind=Kind.TRAIN,
            cloud=cloud.name,
            simulated=cloud.simulated,
            strategy=text,
            seed=seed,
            parallel=parallel,
            version="test",
            catalog_date="2026-08-01",
        ),
        problem=problem,
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
    moments: Moments = read_moment,
) -> Engine[Problem]:
    """An engine on a new run of `store` (with add=False on one that is there already)."""
    if add:
        store.add(make_run(problem, cloud, text, run_id=run_id, seed=seed, parallel=parallel), spec={})
    who = chosen or strategy(text, seed=seed)
    return Engine(
        run=stored(store, run_id),
        decider=SearchDecider(strategy=who, aftermath=TrainingDecider(), parallel=parallel, naive=naive),
        performer=NodePerformer(cloud=cloud, guarded=who.guarded, elastic=who if isinstance(who, Elastic) else None),
        journal=store,
        observer=observer,
        moments=moments,
    )


def stored(store: Store, run_id: str = "run-1") -> SearchRun:
    """A run of a training as the store has it."""
    return cast(SearchRun, store.load(run_id))


def driven(engine: Engine[Problem], store: Store) -> SearchRun:
    """The run at its end, as the store has it: what the engine has in its memory is the same."""
    run = engine.drive()
    kept = stored(store, run.run_id)
    assert kept == run
    return kept


def timeless(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Steps without the wall clock, to compare two runs that were made at different times."""
    return tuple(replace(step, started_at=0.0) for step in steps)


QUICK_TRIALS = TrialPolicy(seconds=300.0, extra_seconds_per_3_nodes=30.0, extension=0.5, watchdog_seconds=60.0)
