"""`mlcd bench suggest`: how long one suggestion takes, with refitted hyperparameters, compared with scikit-learn."""

import time
import warnings
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from scipy.special import ndtr

from mlcd.bench.new_run import after_trials, new_run
from mlcd.catalog import load_catalog
from mlcd.clouds.sim import SimCloud, SimJob
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective
from mlcd.jobs.resolved_job import deployments
from mlcd.problem import Problem
from mlcd.run.kind import Kind
from mlcd.search.registry import strategy
from mlcd.space import Space
from mlcd.trial.trial import History, Measurement
from mlcd.units import ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestTimes:
    """As `mlcd bench suggest -o json` prints it; sklearn_median_ms is None where scikit-learn was not timed."""

    strategy: str
    candidates: int
    observations: int
    median_ms: float
    p95_ms: float
    sklearn_median_ms: float | None


def time_suggest(
    *,
    candidates: int,
    observations: int,
    repeats: int = 15,
    seed: int = 0,
    strategy_text: str = "auto",
    with_sklearn: bool = True,
) -> SuggestTimes:
    """Time both in turns in one process, so that other load on the machine slows both alike.

    strategy_text  as a user writes it; heterbo:start=1 is heterbo without first looks at every type
    with_sklearn   whether scikit-learn is timed, where it is installed

    Each repeat has a new random history. Ours starts from the fit of all trials but the last (as in a search), refits
    and scores all candidates. scikit-learn fits a Matern 5/2 kernel with a length per feature and noise, from as many
    starts (two), predicts all candidates and takes the largest expected improvement.
    """
    problem, cloud = _problem(candidates)
    ours, theirs = [], []
    with_sklearn = with_sklearn and find_spec("sklearn") is not None
    for repeat in range(repeats):
        history = _history(problem, cloud, observations, seed + repeat)
        decider = SearchDecider(strategy=strategy(strategy_text, seed=repeat), aftermath=TrainingDecider())
        for trials in (history.trials[:-1], history.trials):
            run = after_trials(new_run(Kind.TRAIN, problem, cloud=cloud.name, strategy=strategy_text), trials)
            begun = time.perf_counter()
            decider.round(run, run.step_seconds, 1)
            elapsed = time.perf_counter() - begun
        ours.append(elapsed * 1000)
        if with_sklearn and repeat < max(repeats // 3, 3):
            theirs.append(_sklearn_ms(problem.space, history))
    return SuggestTimes(
        strategy=strategy_text,
        candidates=len(problem.space),
        observations=observations,
        median_ms=float(np.median(ours)),
        p95_ms=float(np.percentile(ours, 95)),
        sklearn_median_ms=float(np.median(theirs)) if theirs else None,
    )


def _problem(candidates: int) -> tuple[Problem, SimCloud]:
    instances = load_catalog(refreshed=False).select(["aws-62"], cloud="aws")
    per_type = candidates // len(instances)
    if per_type < 1:
        raise BadInput(f"--candidates: must be at least {len(instances)} (got {candidates})")
    cloud = SimCloud(cloud="aws", instances={i.name: i for i in instances}, job=SimJob(model="resnet152"))
    space = deployments(instances, lambda _: tuple(range(1, per_type + 1)))
    problem = Problem(
        name="suggest",
        work_samples=4.5e6,
        space=space,
        goal=Goal(minimize=Objective.TIME),
        usd_per_hour=tuple(cloud.instances[c.instance].usd_per_hour * c.nodes for c in space),
        max_trials=10_000,
    )
    return problem, cloud


def _history(problem: Problem, cloud: SimCloud, observations: int, seed: int) -> History:
    random = np.random.default_rng(seed)
    runnable = [c for c in problem.space if cloud.true_samples_per_second(c) is not None]
    if observations > len(runnable):
        raise BadInput(f"--observations: must be at most {len(runnable)} (got {observations})")
    trials = []
    for row in random.choice(len(runnable), size=observations, replace=False):
        speed = cloud.true_samples_per_second(runnable[row])
        trials.append(
            Measurement(
                config=runnable[row],
                attempt=1,
                samples_per_second=float((speed or 1.0) * np.exp(0.03 * random.normal())),
                relative_error=0.03,
                iterations=30,
                startup_seconds=90.0,
                seconds=600.0,
                usd=ZERO,
            )
        )
    return History(tuple(trials))


def _sklearn_ms(space: Space, history: History) -> float:
    from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415 - an extra, and slow to import
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel  # noqa: PLC0415

    inputs = np.hstack([space.encoding.features, space.encoding.counts])
    rows = [space.index[trial.config] for trial in history.measured]
    values = np.log([trial.samples_per_second for trial in history.measured])
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel = ConstantKernel() * Matern(np.ones(inputs.shape[1]), nu=2.5) + WhiteKernel(0.01)
        process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=0)
        mean, deviation = process.fit(inputs[rows], values).predict(inputs, return_std=True)
    z = (mean - values.max()) / deviation
    int(((mean - values.max()) * ndtr(z) + deviation * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)).argmax())
    return (time.perf_counter() - begun) * 1000
