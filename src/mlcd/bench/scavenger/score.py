"""`mlcd bench scavenger`: the product's modes on measured trainings, as a user gets them.

Every row is runs of `mlcd train` with an open batch: trials that cost what they take and continue the training, the
noise they measure, the choice, the training on it, and (goodput) its changes of K and B on the way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

import numpy as np

from mlcd.bench.new_run import new_run
from mlcd.bench.scavenger.planned import PLANNED_SAMPLES
from mlcd.bench.scavenger.replay import MEAN_START_SECONDS, METRIC, MeasuredTraining, choice_of
from mlcd.bench.scavenger.truth import GPUS_PER_NODE, USD_PER_NODE_HOUR, ClusterChoice, ScavengerTruth, usd
from mlcd.bench.tasks import run_tasks
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.engine import Engine
from mlcd.engine.clock import SimulatedClock
from mlcd.engine.on_nodes import NodePerformer
from mlcd.errors import BadInput, nearest
from mlcd.events import Event, SearchEnded
from mlcd.goal import Goal, Objective
from mlcd.jobs.known_jobs import known_job
from mlcd.models.tradeoff import depth, knee
from mlcd.models.universal import KnownJob
from mlcd.problem import Batching, Problem, Target, TrialPolicy
from mlcd.run.kind import Kind
from mlcd.run.run import SearchRun
from mlcd.search.registry import strategy
from mlcd.search.scavenger.grid import GridStrategy
from mlcd.search.strategy import Elastic
from mlcd.space import Config, Knob, Space
from mlcd.spec.batches import RateRule
from mlcd.units import Usd

MODES = ("full", "partial", "universal", "goodput")
INSTANCE = "g4dn.12xlarge"
DONE_SHARE = 1e-3
"""A training of which less than this share remains is done."""
TRIAL_POLICY = TrialPolicy(seconds=2 * MEAN_START_SECONDS, extra_seconds_per_3_nodes=0.0)
"""Two minutes, of which the start takes half; extended by half where the speed is still uncertain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScavengerRow:
    """One model, mode and seed.

    trials       of the run for the least time; `restarts` of its training, to change K or B
    done_share   the progress of the training when that run's search ended
    *_mape       mean of |predicted/true - 1| for the rest of the training when the search ended, over untried
                 configurations; None where there are none, or the training was done
    regret_*     time or cost from the end of the search to the target, restarts included and the first start not,
                 relative to the best configuration for that rest, minus 1, each from a run with that goal; None where
                 the trials met the target; for the knee, the missing share of its depth over a whole training
    overhead     time of the run for the least time beyond that of a whole training on its choice, relative to it
    total_ratio  all of that run's time relative to the optimal training's: what a user waits for
    """

    model: str
    mode: str
    seed: int
    trials: int
    restarts: int
    done_share: float
    step_mape: float | None
    iterations_mape: float | None
    time_mape: float | None
    cost_mape: float | None
    regret_time: float | None
    regret_cost: float | None
    regret_knee: float | None
    overhead: float
    total_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median and the quartiles of a figure over models and seeds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread | None":
        """Over the values that are known; None if none is."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        low, middle, high = (float(value) for value in np.quantile(known, (0.25, 0.5, 0.75)))
        return cls(median=middle, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScavengerSummary:
    """A mode over all its rows, which are models times seeds; errors and regrets over the rows that have them.

    met_in_trials  rows whose run for the least time met the target during its search
    """

    mode: str
    runs: int
    met_in_trials: int
    step_mape: Spread | None
    iterations_mape: Spread | None
    time_mape: Spread | None
    regret_time: Spread | None
    regret_cost: Spread | None
    overhead: Spread | None
    total_ratio: Spread | None


@dataclass(frozen=True, kw_only=True)
class ReplayedTraining:
    """A run, and the progress of the training when its search ended.

    errors  (step, iterations, time) of each untried configuration at that moment
    starts  seconds that each attempt at the training took to start
    """

    truth: ScavengerTruth
    run: SearchRun
    progress: float
    errors: tuple[tuple[float, float, float], ...]
    starts: tuple[float, ...]

    @property
    def choice(self) -> ClusterChoice:
        """The chosen configuration. Raises ValueError where there is none."""
        if self.run.choice is None:
            raise ValueError(f"{self.truth.name}: {self.run.stopped}")
        return choice_of(self.run.choice.config)

    @property
    def regret_time(self) -> float | None:
        """See ScavengerRow."""
        if self.is_done:
            return None
        best = min(self.truth.seconds_left(choice, self.progress) for choice in self.truth.choices)
        return _whole(sum(self._seconds) / best - 1)

    @property
    def regret_cost(self) -> float | None:
        """See ScavengerRow."""
        truth = self.truth
        if self.is_done:
            return None
        best = min(usd(choice, truth.seconds_left(choice, self.progress)) for choice in truth.choices)
        spent = zip(self.run.attempts, self._seconds, strict=True)
        return _whole(sum(usd(choice_of(attempt.config), seconds) for attempt, seconds in spent) / best - 1)

    @property
    def regret_knee(self) -> float | None:
        """See ScavengerRow."""
        return None if self.is_done else _whole(_knee_regret(self.truth, self.choice))

    @property
    def is_done(self) -> bool:
        """Whether the trials met the target."""
        return self.progress > 1 - DONE_SHARE

    @property
    def _seconds(self) -> list[float]:
        """Seconds of each attempt, without the first one's start."""
        firsts = (self.starts[0], *(0.0 for _ in self.run.attempts[1:]))
        return [attempt.seconds - first for attempt, first in zip(self.run.attempts, firsts, strict=True)]


def score(
    truths: Mapping[str, ScavengerTruth],
    *,
    models: Sequence[str] = (),
    modes: Sequence[str] = MODES,
    seeds: int = 3,
    rule: RateRule = RateRule.ADASCALE,
    known_length: bool = False,
    jobs: int = 1,
) -> list[ScavengerRow]:
    """One row per model, mode and seed; `models` limits the rows, while all truths are earlier runs for `universal`.

    rule          the job's learning-rate rule, which counts until its noise is known
    known_length  whether the job file has the true epochs at the smallest batch, as after an earlier training
    jobs          processes; see run_tasks
    """
    for wanted, known, what in ((models, truths, "model"), (modes, MODES, "mode")):
        for name in wanted:
            if name not in known:
                hint = nearest(name, list(known))
                raise BadInput(
                    f"no {what} {name!r}; there are {', '.join(known)}" + (f"; did you mean {hint}?" if hint else "")
                )
    lent: dict[str, KnownJob | None] = {}
    if "universal" in modes:
        lent = dict(zip(truths, run_tasks(_known_job, [(truth,) for truth in truths.values()], jobs=jobs), strict=True))
    tasks = []
    for name in models or truths:
        others = tuple(job for other, job in lent.items() if other != name and job is not None)
        case = BenchCase(truth=truths[name], known=others, rule=rule, known_length=known_length)
        tasks += [(case, mode, seed) for mode in modes for seed in range(seeds)]
    return run_tasks(_row, tasks, jobs=jobs)


@dataclass(frozen=True, kw_only=True)
class BenchCase:
    """A model as a user's job: what its file says, and the knowledge from earlier runs of other jobs."""

    truth: ScavengerTruth
    known: tuple[KnownJob, ...] = ()
    rule: RateRule = RateRule.ADASCALE
    known_length: bool = False

    def problem(self, minimize: Objective) -> Problem:
        """The problem as from a job file: the target, batches, the learning-rate rule and, where known, the epochs."""
        truth = self.truth
        configs = tuple(
            Config((("instance", INSTANCE), ("nodes", choice.workers), ("batch", choice.batch)))
            for choice in truth.choices
        )
        knobs = (
            Knob(name="instance", values=(INSTANCE,), features={INSTANCE: ()}),
            Knob(name="nodes", values=tuple(sorted({c.workers for c in truth.choices}))),
            Knob(name="batch", values=truth.batches),
        )
        work = PLANNED_SAMPLES.get(truth.name)
        if self.known_length:
            work = truth.iterations[truth.batches[0]] * truth.batches[0]
        return Problem(
            name=truth.name,
            work_samples=1e6 if work is None else work,
            work_known=work is not None,
            space=Space(knobs, configs),
            goal=Goal(minimize=minimize),
            usd_per_hour=tuple(Usd.of(USD_PER_NODE_HOUR / GPUS_PER_NODE * c.nodes) for c in configs),
            trial=TRIAL_POLICY,
            max_trials=len(configs) + 10,
            keeps_work=True,
            batching=Batching(reference=truth.batches[0], decay=self.rule.decay),
            target=Target(metric=METRIC, value=truth.target, higher=truth.higher_is_better),
        )


def _known_job(truth: ScavengerTruth) -> KnownJob | None:
    """The knowledge from an earlier run of this model, as `mlcd train` reads it from the store."""
    return known_job(train(BenchCase(truth=truth), "partial", Objective.TIME, seed=0).run)


def train(case: BenchCase, mode: str, minimize: Objective, *, seed: int | None = None) -> ReplayedTraining:
    """One run of `mlcd train` with this mode's strategy. seed: see MeasuredTraining."""
    truth = case.truth
    chosen = strategy(f"scavenger-{mode}", jobs=case.known)
    if not isinstance(chosen, GridStrategy):
        raise TypeError(f"scavenger-{mode} predicts no step times")
    cloud = MeasuredTraining(truth=truth, seed=seed)
    decider = SearchDecider(strategy=chosen, aftermath=TrainingDecider())
    progress = 0.0
    errors: tuple[tuple[float, float, float], ...] = ()

    def seen(event: Event) -> None:
        nonlocal progress, errors
        if isinstance(event, SearchEnded):
            progress, errors = cloud.progress, _errors(truth, cloud.progress, decider, chosen, engine.run)

    problem = replace(case.problem(minimize), noise=cloud.noise)
    engine = Engine(
        run=new_run(Kind.TRAIN, problem, cloud=cloud.name, strategy=chosen.name),
        decider=decider,
        performer=NodePerformer(cloud=cloud, elastic=chosen if isinstance(chosen, Elastic) else None),
        observer=seen,
        clock=SimulatedClock(),
    )
    run = engine.drive()
    return ReplayedTraining(truth=truth, run=run, progress=progress, errors=errors, starts=tuple(cloud.starts))


def summarise(rows: Sequence[ScavengerRow]) -> list[ScavengerSummary]:
    """Medians and quartiles over models and seeds, one line per mode."""
    found = []
    for mode in dict.fromkeys(row.mode for row in rows):
        of = [row for row in rows if row.mode == mode]
        found.append(
            ScavengerSummary(
                mode=mode,
                runs=len(of),
                met_in_trials=sum(r.done_share > 1 - DONE_SHARE for r in of),
                step_mape=Spread.of([r.step_mape for r in of]),
                iterations_mape=Spread.of([r.iterations_mape for r in of]),
                time_mape=Spread.of([r.time_mape for r in of]),
                regret_time=Spread.of([r.regret_time for r in of]),
                regret_cost=Spread.of([r.regret_cost for r in of]),
                overhead=Spread.of([r.overhead for r in of]),
                total_ratio=Spread.of([r.total_ratio for r in of]),
            )
        )
    return found


def as_json(rows: Sequence[ScavengerRow]) -> dict[str, object]:
    """Rows and summary, as `mlcd bench scavenger -o json` prints them."""
    return {"rows": [asdict(row) for row in rows], "summary": [asdict(line) for line in summarise(rows)]}


def _row(case: BenchCase, mode: str, seed: int) -> ScavengerRow:
    by_time, by_money, by_knee = (
        train(case, mode, minimize, seed=seed) for minimize in (Objective.TIME, Objective.COST, Objective.KNEE)
    )
    truth = case.truth
    step, iterations, seconds = (
        fmean(error[at] for error in by_time.errors) if by_time.errors else None for at in range(3)
    )
    quickest = min(truth.seconds(choice) for choice in truth.choices)
    return ScavengerRow(
        model=truth.name,
        mode=mode,
        seed=seed,
        trials=len(by_time.run.trials),
        restarts=len(by_time.run.earlier),
        done_share=by_time.progress,
        step_mape=step,
        iterations_mape=iterations,
        time_mape=seconds,
        cost_mape=seconds,  # the price is hourly: the same relative error
        regret_time=by_time.regret_time,
        regret_cost=by_money.regret_cost,
        regret_knee=by_knee.regret_knee,
        overhead=by_time.run.total_seconds / truth.seconds(by_time.choice) - 1,
        total_ratio=by_time.run.total_seconds / (MEAN_START_SECONDS + quickest),
    )


def _errors(
    truth: ScavengerTruth, progress: float, decider: SearchDecider, chosen: GridStrategy, run: SearchRun
) -> tuple[tuple[float, float, float], ...]:
    """Errors of the strategy's predictions for the rest of the training, against the tables."""
    account = decider.accounts.at(run, run.step_seconds)
    problem, history = account.remaining, account.history
    if progress > 1 - DONE_SHARE:
        return ()
    startup = fmean(trial.startup_seconds for trial in history.measured)
    found = []
    for plan in chosen.prospects(problem, history):
        if plan.config in history.tried:
            continue
        choice = choice_of(plan.config)
        steps = problem.work_of(plan.config) / choice.batch
        true_seconds = truth.seconds_left(choice, progress)
        true_step = truth.step_seconds(choice)
        step = (plan.seconds - startup) / steps
        found.append(
            (
                abs(step / true_step - 1),
                abs(steps * true_step / true_seconds - 1),
                abs(plan.seconds / (MEAN_START_SECONDS + true_seconds) - 1),
            )
        )
    return tuple(found)


def _whole(regret: float) -> float:
    """Rounded: the best choice has a regret of 0, not of -2e-16."""
    return round(regret, 9) + 0.0


def _knee_regret(truth: ScavengerTruth, chosen: ClusterChoice) -> float:
    """How much less deep below the chord the chosen knee is than the true one, as a share of the latter's depth."""
    points = [(truth.seconds(c), truth.usd(c)) for c in truth.choices]
    depths = depth(points)
    best = depths[knee(points)]
    return (best - depths[truth.choices.index(chosen)]) / best if best > 0 else 0.0
