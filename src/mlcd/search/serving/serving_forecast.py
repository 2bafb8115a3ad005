"""What a configuration is worth to the goal, by the belief about its latency."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from mlcd.problem import Problem
from mlcd.search.acquisition import expected_saving
from mlcd.search.serving.falcon_settings import BeliefSettings
from mlcd.search.serving.table_informed import ById
from mlcd.space import Space
from mlcd.trial.trial import History

Floats = NDArray[np.float64]

DEFAULTS = BeliefSettings()


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadTests:
    """The load tests so far, as input of a latency model: ln seconds of a batch = ln(items / measured rate)."""

    rows: NDArray[np.intp]
    log_seconds: Floats
    errors: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class ServingForecast:
    """What each configuration may bring, all (N,).

    log_value  ln of the goal's value of a million requests, smaller is better, if the limits are kept
    keeps      the probability that the latency limit, the rate and the memory are kept
    gain       the expected saving against the best so far, in the goal's unit; while nothing keeps the limits yet, in
               proportion to requests served per unit, times the probability that the limits are kept
    best       the best posterior value that kept the limits; before there is one, a stand-in
    incumbent  the row of that value; None before there is one
    """

    log_value: Floats
    keeps: Floats
    gain: Floats
    best: float
    has_incumbent: bool
    incumbent: int | None = None

    @property
    def likely(self) -> Floats:
        """Predicted value as a share of the best predicted, larger is better: exp(-log_value) x keeps."""
        worth = np.exp(self.log_value.min() - self.log_value) * self.keeps
        return np.asarray(worth / max(float(worth.max()), 1e-300))

    def is_hopeless(self, is_open: NDArray[np.bool_], least_probability: float) -> bool:
        """Whether nothing kept the limits, and nothing open does so with at least `least_probability`."""
        return not self.has_incumbent and float(self.keeps[is_open].max(initial=0.0)) < least_probability


def items_of(space: Space) -> Floats:
    """(N,) requests in flight at once: batch x replicas."""
    return _items(ById(space))


@lru_cache(maxsize=8)
def _items(space: ById[Space]) -> Floats:
    found = [dict(config.values) for config in space.value.configs]
    return np.array([float(values.get("batch", 1)) * float(values.get("replicas", 1)) for values in found])


def load_tests(problem: Problem, history: History) -> LoadTests:
    """Every trial that measured a rate, even if it broke the limit: its latency is still informative."""
    measured = history.measured
    rows = np.array([problem.space.index[trial.config] for trial in measured], dtype=np.intp)
    rates = np.array([trial.samples_per_second for trial in measured])
    errors = np.array([trial.relative_error for trial in measured])
    return LoadTests(rows=rows, log_seconds=np.log(items_of(problem.space)[rows] / rates), errors=errors)


def latency_bound(problem: Problem, history: History) -> float:
    """ln of the most seconds that a full batch may take under the latency limit; infinite without a limit.

    At first the limit itself, as in a closed loop. A load test that kept the limit with a slower full batch (the server
    did not wait for batches to fill) raises it; one that broke it with a faster full batch (requests waited) lowers it.
    If they contradict each other, it lies between.
    """
    slo = problem.goal.slo
    if slo is None:
        return np.inf
    bound = float(np.log(slo.seconds))
    log_seconds = load_tests(problem, history).log_seconds
    kept = np.array([trial.load is not None and trial.load.meets(slo) for trial in history.measured], dtype=bool)
    highest = float(log_seconds[kept].max(initial=bound))
    lowest = float(log_seconds[~kept].min(initial=bound))
    if highest > bound and lowest < bound:
        return (highest + lowest) / 2
    return highest if highest > bound else lowest


def outlook(
    problem: Problem,
    history: History,
    log_seconds: Floats,
    variance: Floats,
    fits: Floats,
    *,
    waiting_deviation: float = DEFAULTS.waiting_deviation,
) -> ServingForecast:
    """The forecast of each configuration if ln seconds of a batch ~ N(log_seconds, variance).

    `fits` is the probability that its memory suffices. V = f x S / min(items / seconds, rate), f = the goal's scale.
    The limit and the rate bound the same unknown: seconds <= min(latency_bound, items / rate); the expected saving
    counts only outcomes within the bound. A p95 or p99 limit includes waiting beyond the batch, unlike a p50: then the
    bound itself is uncertain, with `waiting_deviation`.
    """
    items = items_of(problem.space)
    scale = np.log(problem.goal.scale(problem.dollars_per_second)) + np.log(problem.work_samples)
    bound = np.full(len(items), latency_bound(problem, history))
    rate, slo = problem.goal.rate, problem.goal.slo
    waits = slo is not None and slo.percentile > 50
    deviation = np.sqrt(variance + waiting_deviation**2) if waits else np.sqrt(variance)
    if rate is not None:
        bound = np.minimum(bound, np.log(items / rate))
    keeps = np.where(np.isinf(bound), 1.0, ndtr((bound - log_seconds) / deviation)) * fits
    log_value = scale + log_seconds - np.log(items) if rate is None else scale - np.log(rate)
    kept = [problem.space.index[trial.config] for trial in history.measured if trial.meets(problem.goal)]
    # The posterior mean, not the measurement: the best of many noisy values is partly luck.
    row = min(kept, key=lambda row: float(log_value[row])) if kept else None
    least = None if row is None else float(np.exp(log_value[row]))
    best = least if least is not None else _stand_in(log_value, keeps)
    if least is None:
        gain = best**2 * np.exp(-log_value) * keeps
    elif rate is None and waits:
        gain = expected_saving(log_value, variance, best) * keeps
    elif rate is None:
        gain = expected_saving(log_value, variance, best, scale + bound - np.log(items)) * fits
    else:
        gain = np.maximum(best - np.exp(log_value), 0.0) * keeps
    return ServingForecast(
        log_value=np.asarray(log_value),
        keeps=keeps,
        gain=gain,
        best=best,
        has_incumbent=row is not None,
        incumbent=row,
    )


def _stand_in(log_value: Floats, keeps: Floats) -> float:
    """Before anything fits: the worst value that probably keeps the limits, so that every one that does is a gain."""
    probable = keeps >= min(0.5, float(keeps.max()))
    return float(np.exp(log_value[probable].max()))
