"""`mlcd bench scavenger`: the product's modes on measured trainings, as a user gets them.

Every row is runs of `mlcd train` with an open batch: trials that cost what they take and continue the training, the
noise they measure, the choice, the training on it, and (goodput) its changes of K and B on the way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median

from mlcd.bench.new_run import new_run
from mlcd.bench.scavenger.descriptions import DESCRIPTIONS
from mlcd.bench.scavenger.replay import METRIC, START_SECONDS, MeasuredTraining, choice_of
from mlcd.bench.scavenger.truth import GPUS_PER_NODE, USD_PER_NODE_HOUR, ClusterChoice, ScavengerTruth
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
from mlcd.units import Usd

MODES = ("full", "partial", "universal", "goodput")
INSTANCE = "g4dn.12xlarge"
TRIAL_POLICY = TrialPolicy(seconds=2 * START_SECONDS, extra_seconds_per_3_nodes=0.0)
"""Two minutes, one of which is the start; extended by half where the speed is still uncertain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScavengerRow:
    """One model and mode.

    trials       of the run for the least time; `restarts` of its training, to change K or B
    *_mape       mean of |predicted/true - 1| for the rest of the training when the search ended, over untried
                 configurations; None where there are none, or the training was done
    regret_*     time or cost of the training alone relative to the optimum, minus 1, each from a run with that goal;
                 for the knee, the missing share of its depth
    overhead     all other time of the run for the least time, relative to its training's
    total_ratio  all of that run's time relative to the optimal training's: what a user waits for
    """

    model: str
    mode: str
    trials: int
    restarts: int
    step_mape: float | None
    iterations_mape: float | None
    time_mape: float | None
    cost_mape: float | None
    regret_time: float
    regret_cost: float
    regret_knee: float
    overhead: float
    total_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScavengerSummary:
    """Medians over models; for errors, over the models that have them."""

    mode: str
    median_time_mape: float | None
    median_cost_mape: float | None
    median_regret_time: float
    median_regret_cost: float
    median_overhead: float
    median_total_ratio: float


@dataclass(frozen=True, kw_only=True)
class ReplayedTraining:
    """A run, and the progress of the training when its search ended.

    errors  (step, iterations, time) of each untried configuration at that moment
    """

    truth: ScavengerTruth
    run: SearchRun
    progress: float
    errors: tuple[tuple[float, float, float], ...]

    @property
    def choice(self) -> ClusterChoice:
        """The chosen configuration. Raises ValueError where there is none."""
        if self.run.choice is None:
            raise ValueError(f"{self.truth.name}: {self.run.stopped}")
        return choice_of(self.run.choice.config)

    @property
    def seconds(self) -> float:
        """Seconds of a whole training at the rate of this one after the search, without starts."""
        return self._whole(lambda _: 1.0, self.truth.seconds(self.choice))

    @property
    def usd(self) -> float:
        """Its cost in dollars."""
        price = self.run.problem.price
        return self._whole(lambda config: price(config).dollars / 3600, self.truth.usd(self.choice))

    def _whole(self, per_second: Callable[[Config], float], alone: float) -> float:
        remaining = 1 - self.progress
        if remaining < 1e-3:
            return alone  # the trials completed the training: count it as if it had run on the choice
        return sum((a.seconds - START_SECONDS) * per_second(a.config) for a in self.run.attempts) / remaining


def score(
    truths: Mapping[str, ScavengerTruth], *, models: Sequence[str] = (), modes: Sequence[str] = MODES, jobs: int = 1
) -> list[ScavengerRow]:
    """One row per model and mode; `models` limits the rows, while all truths are earlier runs for the universal mode.

    jobs  processes; see run_tasks
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
        tasks += [(truths[name], mode, others) for mode in modes]
    return run_tasks(_row, tasks, jobs=jobs)


def _known_job(truth: ScavengerTruth) -> KnownJob | None:
    """The knowledge from an earlier run of this model, as `mlcd train` reads it from the store."""
    return known_job(train(truth, "partial", Objective.TIME).run)


def train(truth: ScavengerTruth, mode: str, minimize: Objective, known: tuple[KnownJob, ...] = ()) -> ReplayedTraining:
    """One run of `mlcd train` with this mode's strategy. `known` is the knowledge from earlier runs of other jobs."""
    chosen = strategy(f"scavenger-{mode}", jobs=known)
    if not isinstance(chosen, GridStrategy):
        raise TypeError(f"scavenger-{mode} predicts no step times")
    cloud = MeasuredTraining(truth=truth)
    decider = SearchDecider(strategy=chosen, aftermath=TrainingDecider())
    progress = 0.0
    errors: tuple[tuple[float, float, float], ...] = ()

    def seen(event: Event) -> None:
        nonlocal progress, errors
        if isinstance(event, SearchEnded):
            progress, errors = cloud.progress, _errors(truth, cloud.progress, decider, chosen, engine.run)

    engine = Engine(
        run=new_run(Kind.TRAIN, problem_of(truth, minimize), cloud=cloud.name, strategy=chosen.name),
        decider=decider,
        performer=NodePerformer(cloud=cloud, elastic=chosen if isinstance(chosen, Elastic) else None),
        observer=seen,
        clock=SimulatedClock(),
    )
    return ReplayedTraining(truth=truth, run=engine.drive(), progress=progress, errors=errors)


def problem_of(truth: ScavengerTruth, minimize: Objective) -> Problem:
    """The problem as from a job file: the target, batches, AdaScale's rule and, where known, the epochs."""
    configs = tuple(
        Config((("instance", INSTANCE), ("nodes", choice.workers), ("batch", choice.batch))) for choice in truth.choices
    )
    described = DESCRIPTIONS.get(truth.name)
    knobs = (
        Knob(name="instance", values=(INSTANCE,), features={INSTANCE: ()}),
        Knob(name="nodes", values=tuple(sorted({c.workers for c in truth.choices}))),
        Knob(name="batch", values=truth.batches),
    )
    return Problem(
        name=truth.name,
        work_samples=described.planned_samples if described else 1e6,
        work_known=described is not None,
        space=Space(knobs, configs),
        goal=Goal(minimize=minimize),
        usd_per_hour=tuple(Usd.of(USD_PER_NODE_HOUR / GPUS_PER_NODE * c.nodes) for c in configs),
        trial=TRIAL_POLICY,
        max_trials=len(configs) + 10,
        keeps_work=True,
        batching=Batching(reference=truth.batches[0]),
        target=Target(metric=METRIC, value=truth.target, higher=truth.higher_is_better),
    )


def summarise(rows: Sequence[ScavengerRow]) -> list[ScavengerSummary]:
    """Medians over models, one line per mode."""
    found = []
    for mode in dict.fromkeys(row.mode for row in rows):
        of = [row for row in rows if row.mode == mode]
        found.append(
            ScavengerSummary(
                mode=mode,
                median_time_mape=_median([r.time_mape for r in of]),
                median_cost_mape=_median([r.cost_mape for r in of]),
                median_regret_time=median(r.regret_time for r in of),
                median_regret_cost=median(r.regret_cost for r in of),
                median_overhead=median(r.overhead for r in of),
                median_total_ratio=median(r.total_ratio for r in of),
            )
        )
    return found


def as_json(rows: Sequence[ScavengerRow]) -> dict[str, object]:
    """Rows and summary, as `mlcd bench scavenger -o json` prints them."""
    return {"rows": [asdict(row) for row in rows], "summary": [asdict(line) for line in summarise(rows)]}


def _row(truth: ScavengerTruth, mode: str, known: tuple[KnownJob, ...]) -> ScavengerRow:
    by_time, by_money, by_knee = (
        train(truth, mode, minimize, known) for minimize in (Objective.TIME, Objective.COST, Objective.KNEE)
    )
    step, iterations, seconds = (
        fmean(error[at] for error in by_time.errors) if by_time.errors else None for at in range(3)
    )
    quickest = min(truth.seconds(choice) for choice in truth.choices)
    cheapest = min(truth.usd(choice) for choice in truth.choices)
    return ScavengerRow(
        model=truth.name,
        mode=mode,
        trials=len(by_time.run.trials),
        restarts=len(by_time.run.earlier),
        step_mape=step,
        iterations_mape=iterations,
        time_mape=seconds,
        cost_mape=seconds,  # the price is hourly: the same relative error
        regret_time=_whole(by_time.seconds / quickest - 1),
        regret_cost=_whole(by_money.usd / cheapest - 1),
        regret_knee=_whole(_knee_regret(truth, by_knee.choice)),
        overhead=by_time.run.total_seconds / by_time.seconds - 1,
        total_ratio=by_time.run.total_seconds / (START_SECONDS + quickest),
    )


def _errors(
    truth: ScavengerTruth, progress: float, decider: SearchDecider, chosen: GridStrategy, run: SearchRun
) -> tuple[tuple[float, float, float], ...]:
    """Errors of the strategy's predictions for the rest of the training, against the tables."""
    account = decider.accounts.at(run, run.step_seconds)
    remaining, problem, history = 1 - progress, account.remaining, account.history
    if remaining < 1e-3:
        return ()
    found = []
    for plan in chosen.prospects(problem, history):
        if plan.config in history.tried:
            continue
        choice = choice_of(plan.config)
        steps = problem.work_of(plan.config) / choice.batch
        true_steps = remaining * truth.iterations[choice.batch]
        step = (plan.seconds - START_SECONDS) / steps
        true_seconds = START_SECONDS + remaining * truth.seconds(choice)
        found.append(
            (
                abs(step / truth.step_seconds(choice) - 1),
                abs(steps / true_steps - 1),
                abs(plan.seconds / true_seconds - 1),
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


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
