"""What a configuration is worth to the goal: for a trial, and for every known model."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlcd.goal import Goal
from mlcd.known.tables import Known, KnownModel
from mlcd.problem import Problem
from mlcd.search.serving.table_informed import ById
from mlcd.trial.plan import Plan
from mlcd.trial.trial import History, Measurement, Trial

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


def trial_worth(problem: Problem, trial: Trial) -> float:
    """1 / the goal's value of a million requests (if cost is minimised: requests per dollar, up to a factor).

    0 for a failure, for a trial that broke the latency limit, and for one that did not hold the rate.
    """
    if not isinstance(trial, Measurement) or not trial.meets(problem.goal):
        return 0.0
    return 1.0 / Plan.of(problem, trial).value(problem)


def tried_worth(problem: Problem, history: History) -> tuple[Rows, Floats]:
    """(n,) the tried rows and the worth of each by its last trial."""
    last = {problem.space.index[trial.config]: trial_worth(problem, trial) for trial in history}
    return np.array(list(last), dtype=np.intp), np.array(list(last.values()), dtype=np.float64)


def known_worth(problem: Problem, known: Known, rows: Rows) -> Floats:
    """(models, N) the same for known models in the problem's configurations, as a share of each model's best.

    `rows` are the known configurations that match the problem's. nan where nothing was measured. A model that no
    configuration serves within the limits is left out. If no model remains, the worth is the lowest latency over the
    latency: the fastest answer is the most likely to keep a limit.
    """
    return _known_worth(ById(problem), known, tuple(rows.tolist()))


@lru_cache(maxsize=32)
def _known_worth(problem: ById[Problem], known: Known, rows: tuple[int, ...]) -> Floats:
    at = np.array(rows, dtype=np.intp)
    found = [_worth(problem.value, known, model, at) for model in known.models]
    kept = [values / np.nanmax(values) for values in found if np.nanmax(values, initial=0.0) > 0]
    if not kept:
        latencies = [model.latency_seconds[at] for model in known.models]
        kept = [np.nanmin(seconds) / seconds for seconds in latencies if np.nanmin(seconds, initial=np.inf) < np.inf]
    return np.array(kept).reshape(len(kept), len(at))


def _worth(problem: Problem, known: Known, model: KnownModel, rows: Rows) -> Floats:
    limit = problem.goal.slo.seconds if problem.goal.slo is not None else np.inf
    speed = held(problem.goal, known.throughput(model, limit)[rows])
    with np.errstate(divide="ignore"):
        seconds = 1.0 / speed
    worth = 1.0 / problem.goal.values(seconds, seconds * problem.dollars_per_second)
    return np.where(np.isnan(model.latency_seconds[rows]), np.nan, worth)


def held(goal: Goal, speed: Floats) -> Floats:
    """The part of a speed that counts: 0 below the required rate, and the required rate above it."""
    return speed if goal.rate is None else np.where(speed >= goal.rate, goal.rate, 0.0)
