"""One search in a table of measured configurations: a held-out model, a latency limit, a seed.

A search is a run of `mlcd serve` whose trials are read from the table.
"""

import hashlib
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mlcd.bench.new_run import new_run
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.verification import VerificationDecider
from mlcd.engine import Engine
from mlcd.engine.performer import Situation
from mlcd.events import Event, StepEnded
from mlcd.goal import Goal, Objective, Slo
from mlcd.known.tables import Known, KnownModel
from mlcd.problem import Problem, TrialPolicy
from mlcd.run.kind import Kind
from mlcd.run.run import SearchRun
from mlcd.run.step import Step
from mlcd.search.registry import strategy
from mlcd.search.strategy import Strategy
from mlcd.space import Config, Knob, Space
from mlcd.trial.call import FunctionCall
from mlcd.trial.trial import Failure, FailureKind, Load, Measurement, Trial
from mlcd.units import Usd

Floats = NDArray[np.float64]
LeaveOut = Literal["model", "family"]

REQUESTS = 1e6
VERIFY_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Bed:
    """A test bed: a table to search in, and those of its models that are searched for.

    targets       names of the models that are searched for
    fixed         True: targets are never sources (the paper's 18 and 12); False: leave one out at a time
    trial_seconds duration of one trial
    noise         relative deviation of a trial's latency, unless the comparison says otherwise
    slo_ms        latency limits, unless the comparison says otherwise
    load_tests    True: a trial goes through the requests in flight on one type (mlcd.bench.serve.load_tests)
    """

    name: str
    known: Known
    targets: tuple[str, ...]
    fixed: bool = False
    trial_seconds: float = 60.0
    noise: float = 0.01
    slo_ms: tuple[float, ...] = (10.0, 30.0, 100.0)
    load_tests: bool = False

    @property
    def has_operators(self) -> bool:
        """Whether methods that use operators apply."""
        return bool(self.known.curves) and all(model.target.operators for model in self.known.models)

    @property
    def has_sizes(self) -> bool:
        """Whether methods that use the sizes of language models apply."""
        return self.known.lengths is not None and all(model.target.language for model in self.known.models)

    def model(self, name: str) -> KnownModel:
        """The target of that name, with its true latencies."""
        return next(model for model in self.known.models if model.name == name)

    def sources(self, name: str, leave: LeaveOut = "model") -> Known:
        """What a search for `name` may know: the other models, without its family if `leave` is `family`.

        The same value each time, so that what strategies derive from it is computed once.
        """
        if self.fixed:
            return _sources(self, self.targets)
        family = self.model(name).family
        kin = [m.name for m in self.known.models if m.family == family] if leave == "family" else []
        return _sources(self, (name, *kin))


@lru_cache(maxsize=64)
def _sources(bed: Bed, left_out: tuple[str, ...]) -> Known:
    return bed.known.without(*left_out)


Rows = NDArray[np.intp]


def measured_rows(model: KnownModel) -> Rows:
    """The rows of the table where the model was measured or ran out of memory: all that can be searched."""
    return np.flatnonzero(~np.isnan(model.latency_seconds))


@lru_cache(maxsize=64)
def space_of(known: Known, rows: tuple[int, ...]) -> Space:
    """The space of these rows' configurations: numbers become counts, names choices, features options."""
    return Space(_knobs(known), tuple(known.configs[row] for row in rows))


@lru_cache(maxsize=8)
def _knobs(known: Known) -> tuple[Knob, ...]:
    names = [name for name, _ in known.configs[0].values]
    knobs = []
    for name in names:
        values = tuple(dict.fromkeys(config[name] for config in known.configs))
        numeric = all(isinstance(value, int | float) and value > 0 for value in values)
        features = None if numeric else {v: tuple(float(v == other) for other in values) for v in values}
        knobs.append(Knob(name=name, values=values, features=features))
    return tuple(knobs)


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A target under a latency limit, with its truth; its trials are read from the table.

    rows    (N,) row in the table of each configuration of the problem; it has only configurations that were measured
    values  (N,) requests per dollar of each configuration of the problem; 0 where the limit is broken
    noise   relative deviation of a trial's latency, keyed by (seed, model, row)
    """

    bed: Bed
    target: KnownModel
    slo_seconds: float
    problem: Problem
    rows: Rows
    values: Floats
    noise: float

    @classmethod
    def of(cls, bed: Bed, name: str, slo_seconds: float, *, noise: float, max_trials: int) -> "Case | None":
        """The case, or None when no configuration keeps the limit. Configurations are valued by requests per dollar."""
        known, target = bed.known, bed.model(name)
        rows = measured_rows(target)
        values = known.per_dollar(target, slo_seconds)[rows]
        if not values.any():
            return None
        problem = Problem(
            name=name,
            work_samples=REQUESTS,
            space=space_of(known, tuple(rows.tolist())),
            goal=Goal(minimize=Objective.COST, slo=Slo(seconds=slo_seconds, percentile=50)),
            usd_per_hour=tuple(Usd.of(price) for price in known.usd_per_hour[rows]),
            trial=TrialPolicy(seconds=bed.trial_seconds, extra_seconds_per_3_nodes=0.0, watchdog_seconds=0.0),
            max_trials=max_trials,
            noise=noise,
            verify_seconds=VERIFY_SECONDS,
        )
        return cls(
            bed=bed, target=target, slo_seconds=slo_seconds, problem=problem, rows=rows, values=values, noise=noise
        )

    @property
    def best(self) -> float:
        """Requests per dollar of the best configuration under the limit."""
        return float(self.values.max())

    def knowledge(self, sources: Known) -> Known:
        """What a strategy is given of the other models."""
        return sources

    def accuracy(self, config: Config | None) -> float:
        """True value of the choice divided by the best; 0 for no choice, and for one that truly breaks the limit."""
        return 0.0 if config is None else float(self.values[self.problem.space.index[config]]) / self.best

    def trial(self, config: Config, seed: int) -> Trial:
        """The trial from the table: a load test, whether it keeps the limit or not, or an out-of-memory failure."""
        row = int(self.rows[self.problem.space.index[config]])
        latency = float(self.target.latency_seconds[row])
        seconds = self.problem.trial.seconds
        usd = self.problem.price(config).for_seconds(seconds)
        if not math.isfinite(latency):
            kind = FailureKind.OUT_OF_MEMORY
            return Failure(config=config, attempt=1, kind=kind, message="out of memory", seconds=seconds, usd=usd)
        factor = math.exp(self.noise * normal(seed, self.target.name, row))
        latency, request = latency * factor, float(self.target.request_seconds[row]) * factor
        return Measurement(
            config=config,
            attempt=1,
            samples_per_second=float(self.bed.known.batches[row] * self.bed.known.replicas[row]) / latency,
            relative_error=self.noise,
            iterations=max(int(seconds / latency), 1),
            startup_seconds=0.0,
            seconds=seconds,
            usd=usd,
            load=Load(p50_seconds=request, p95_seconds=request, p99_seconds=request, requests=1),
        )


def normal(seed: int, name: str, row: int) -> float:
    """Noise of a trial, keyed by what it is of."""
    digest = hashlib.sha256(f"{seed}|{name}|{row}".encode()).digest()
    return float(np.random.default_rng(int.from_bytes(digest[:8], "little")).standard_normal())


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The course of a search: accuracy and dollars after each trial."""

    accuracies: tuple[float, ...]
    usd: tuple[float, ...]
    configs: tuple[Config, ...]

    def accuracy_after(self, trials: int) -> float:
        """Accuracy of the choice after this many trials; a search that ended earlier keeps its choice."""
        return self.accuracies[min(trials, len(self.accuracies)) - 1] if self.accuracies and trials else 0.0

    def usd_after(self, trials: int) -> float:
        """Dollars spent on the first `trials`."""
        return sum(self.usd[:trials])

    def trials_to(self, accuracy: float) -> int | None:
        """Number of trials until the choice first had this accuracy; None if it never did."""
        return next((at for at, seen in enumerate(self.accuracies, start=1) if seen >= accuracy), None)


@dataclass(frozen=True, kw_only=True)
class TablePerformer:
    """Answers load tests from a table, with noise by `seed`."""

    case: Case
    seed: int
    simulated: bool = field(default=True, init=False)

    def restore(self, run: SearchRun) -> None:
        """A table has nothing to restore."""

    def perform(self, step: Step, situation: Situation[Problem]) -> Trial:  # noqa: ARG002 - see Performer
        """See Performer."""
        return self.case.trial(step.config, self.seed)

    def lost(self, step: Step, situation: Situation[Problem], *, interrupted: bool) -> Trial:  # noqa: ARG002
        """A table can be read again: repeat the step."""
        return self.perform(step, situation)

    def calls(self) -> tuple[FunctionCall, ...]:
        """A table makes no calls."""
        return ()


def walk(case: Case, searcher: Strategy, *, seed: int) -> Walk:
    """A whole run of `mlcd serve` without the final verification, with its choice after each trial."""
    decider = SearchDecider(strategy=searcher, aftermath=VerificationDecider(seconds=0.0), guarded=True)
    accuracies: list[float] = []

    def judged(event: Event) -> None:
        if isinstance(event, StepEnded):
            plan = decider.choice(engine.run, engine.run.step_seconds)
            accuracies.append(case.accuracy(plan.config if plan else None))

    engine = Engine(
        run=new_run(Kind.SERVE, case.problem, cloud=case.bed.name, strategy=searcher.name, seed=seed),
        decider=decider,
        performer=TablePerformer(case=case, seed=seed),
        observer=judged,
    )
    history = engine.drive().history
    return Walk(
        accuracies=tuple(accuracies),
        usd=tuple(trial.usd.dollars for trial in history),
        configs=tuple(trial.config for trial in history),
    )


def searcher(text: str, case: Case, sources: Known, *, seed: int) -> Strategy:
    """The strategy of this description, with knowledge of `sources` and of what the case's model consists of."""
    return strategy(text, seed=seed, known=case.knowledge(sources), target=case.target.target)
