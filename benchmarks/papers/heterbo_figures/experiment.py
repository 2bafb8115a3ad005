"""One experiment of the paper on the simulator: a job, a goal, strategies and seeds; and the outcome of each run."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from mlcd.bench.case import search
from mlcd.bench.tasks import run_tasks
from mlcd.catalog import load_catalog
from mlcd.clouds.sim import PAPER_JOBS, SimCloud
from mlcd.goal import Goal
from mlcd.jobs.resolved_job import ResolvedJob, simulated
from mlcd.problem import Problem
from mlcd.run.run import SearchRun
from mlcd.space import Config
from mlcd.spec import NodeCounts, Resources, SearchSettings, TrainSpec, Work
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan, margin_sigmas
from mlcd.trial.trial import Measurement, Trial

OURS = ("heterbo", "heterbo:paper")
"""The product's default, and HeterBO as its paper describes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of `heterbo.py`: a figure's statement, the paper's value and ours. Always simulated."""

    figure: str
    what: str
    paper: float | str | None
    ours: float | str | None
    unit: str
    note: str = ""
    seeds: int = 0
    command: str = ""
    simulated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How thoroughly to run."""

    seeds: int = 5
    jobs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A job of PAPER_JOBS under a goal; `types` replaces the job's own where a figure has others."""

    job: str
    goal: Goal
    types: tuple[str, ...] = ()
    max_nodes: int = 0
    max_trials: int = 30

    def setting(self, seed: int) -> ResolvedJob:
        """The problem and the simulated cloud, as `mlcd train` would make them."""
        paper = PAPER_JOBS[self.job]
        spec = TrainSpec(
            name=self.job,
            goal=self.goal,
            resources=Resources(instance_type=self.types or paper.instances),
            num_nodes=NodeCounts(default=tuple(range(1, (self.max_nodes or paper.max_nodes) + 1))),
            job=Work(
                samples=paper.samples,
                epochs=paper.epochs,
                model=paper.job.model,
                batch=paper.job.batch,
                topology=paper.job.topology,
            ),
            search=SearchSettings(max_trials=self.max_trials),
        )
        return simulated(spec, ["aws"], load_catalog(), seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One trial of a search: its cost, and the training that it predicts (None where it failed)."""

    config: str
    seconds: float
    usd: float
    run_seconds: float | None
    run_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run. Totals are None where nothing was trained; `run_value` is the true training in the goal's unit."""

    status: Status
    steps: tuple[Step, ...]
    probe_seconds: float
    probe_usd: float
    total_seconds: float | None
    total_usd: float | None
    choice: str | None
    run_value: float | None

    @property
    def kept(self) -> bool:
        """Trained within every limit."""
        return self.status is Status.DONE

    @property
    def broke(self) -> bool:
        """Trained, and a limit was broken."""
        return self.status is Status.OVERRAN


def runs(experiment: Experiment, strategy: str, settings: Settings) -> list[Outcome]:
    """Seeds 0 .. seeds - 1."""
    return run_tasks(_run, [(experiment, strategy, seed) for seed in range(settings.seeds)], jobs=settings.jobs)


def _run(experiment: Experiment, strategy: str, seed: int) -> Outcome:
    setting = experiment.setting(seed)
    return _outcome(search(setting.problem, setting.cloud, strategy, seed=seed))


def _outcome(record: SearchRun) -> Outcome:
    problem, final = record.problem, record.final
    finished = final is not None and record.status in (Status.DONE, Status.OVERRAN)
    return Outcome(
        status=record.status,
        steps=tuple(_step(problem, step.trial) for step in record.trials),
        probe_seconds=record.search_seconds,
        probe_usd=record.search_usd.dollars,
        total_seconds=record.total_seconds if finished else None,
        total_usd=record.total_usd.dollars if finished else None,
        choice=str(record.choice.config) if record.choice else None,
        run_value=problem.goal.value(final.seconds, final.usd.dollars) if final and finished else None,
    )


def _step(problem: Problem, trial: Trial) -> Step:
    plan = Plan.of(problem, trial) if isinstance(trial, Measurement) else None
    return Step(
        config=str(trial.config),
        seconds=trial.seconds,
        usd=trial.usd.dollars,
        run_seconds=plan.seconds if plan else None,
        run_usd=plan.usd.dollars if plan else None,
    )


# ---- references


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A deployment to compare a search with; its training in the goal's unit, in seconds and in dollars."""

    config: Config
    value: float
    seconds: float
    usd: float


def free_optimum(experiment: Experiment) -> Reference | None:
    """The best deployment whose training alone fits the limits, found without search cost or safety margin."""
    return _best(experiment, lambda problem, config, seconds: _fits(problem, config, seconds, 0.0))


def best_promised(experiment: Experiment) -> Reference | None:
    """The best that can be promised: its own trial and its training at the upper bound of `assurance` fit the limits.

    At 3% noise and the default assurance (z = 4.75) the bound is 15% above the mean.
    """

    def fits(problem: Problem, config: Config, seconds: float) -> bool:
        worst = seconds * math.exp(margin_sigmas(problem.assurance) * problem.noise)
        return _fits(problem, config, worst, problem.trial.planned_seconds(config.nodes))

    return _best(experiment, fits)


def true_seconds(setting: ResolvedJob, config: Config) -> float | None:
    """The whole training on `config`, start-up included; None where it cannot run."""
    cloud = setting.cloud
    if not isinstance(cloud, SimCloud):
        raise TypeError("only a simulated cloud knows the truth")
    speed = cloud.true_samples_per_second(config)
    return None if speed is None else cloud.startup_seconds(config) + setting.problem.work_samples / speed


def _fits(problem: Problem, config: Config, run_seconds: float, trial_seconds: float) -> bool:
    goal, seconds = problem.goal, run_seconds + trial_seconds
    in_time = goal.deadline_seconds is None or seconds <= goal.deadline_seconds
    return in_time and (goal.budget is None or problem.price(config).for_seconds(seconds) <= goal.budget)


def _best(experiment: Experiment, fits: Callable[[Problem, Config, float], bool]) -> Reference | None:
    setting = experiment.setting(0)
    problem = setting.problem
    found = []
    for config in problem.space:
        seconds = true_seconds(setting, config)
        if seconds is not None and fits(problem, config, seconds):
            usd = problem.price(config).for_seconds(seconds).dollars
            value = problem.goal.value(seconds, usd)
            found.append(Reference(config=config, value=value, seconds=seconds, usd=usd))
    return min(found, key=lambda reference: reference.value, default=None)


# ---- figures of several runs


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are not None; None without any."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def spread(values: Iterable[float | None]) -> float | None:
    """Standard deviation of the values that are not None; None for fewer than two."""
    known = [value for value in values if value is not None]
    return stdev(known) if len(known) > 1 else None


def per_cent(part: float | None, whole: float | None) -> float | None:
    """100 part / whole."""
    return None if part is None or not whole else 100 * part / whole


def over(part: float | None, whole: float | None) -> float | None:
    """part / whole."""
    return None if part is None or not whole else part / whole


def hours(seconds: float | None) -> float | None:
    """Seconds in hours."""
    return None if seconds is None else seconds / 3600


def within(outcomes: Sequence[Outcome], reference: Reference | None, tolerance: float = 0.05) -> float | None:
    """Per cent of the runs that trained on a deployment within `tolerance` of the reference."""
    if reference is None or not outcomes:
        return None
    near = [o.run_value is not None and o.run_value <= reference.value * (1 + tolerance) for o in outcomes]
    return 100 * sum(near) / len(near)


def count(values: Iterable[bool]) -> str:
    """How many are true, such as `3 of 5`."""
    known = list(values)
    return f"{sum(known)} of {len(known)}"
