"""Bayesian optimisation over any knobs: the default of `mlcd.Search(knobs=...)`."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from mlcd.models.knob_gp import Columns, KnobPosterior, Observed, fit
from mlcd.models.speed import one_thread
from mlcd.problem import Problem
from mlcd.search.acquisition import expected_saving
from mlcd.search.candidates import log_seconds_that_fit
from mlcd.search.serving.table_informed import ById, open_rows
from mlcd.search.strategy import MeasuredStrategy, at_least
from mlcd.space import Space
from mlcd.trial.plan import Remaining, best_fitting
from mlcd.trial.trial import FailureKind, History, Suggestion

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

SPREAD_SAMPLE_CONFIGS = 512
"""Random configurations from which each start trial is chosen: enough to find a distant one."""

CONFIG_FAILURES = (FailureKind.OUT_OF_MEMORY, FailureKind.ERROR, FailureKind.HANG)
"""Failures caused by the configuration. The model treats them as equal to the worst measured value."""

LEAST_FIT_PROBABILITY = 0.01
"""While nothing measured fits, a trial needs at least this probability of fitting."""


@dataclass(frozen=True, kw_only=True)
class Bayesian(MeasuredStrategy):
    """Start trials spread over the space, then the largest expected improvement under a Gaussian process.

    Where trials have a score of their own (`mlcd.Search(objective="maximize")`), the search continues for as long as
    trials are allowed. Where they measure the throughput of known work, the price of a trial is subtracted from what it
    is expected to save, and the search ends when no trial is expected to pay for itself.

    start  trials before the model is used. 0 means one more than the number of knobs that vary, at least 3, and at
           most a third of all trials
    """

    name: ClassVar[str] = "bayesian"
    start: int = 0

    def __post_init__(self) -> None:
        at_least(0, start=self.start)

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """Start trials, then the best by the acquisition. Each one assumes that those before it go as expected."""
        rows = np.flatnonzero(open_rows(problem, history, remaining))
        count = min(count, problem.max_trials - len(history), len(rows))
        if count <= 0:
            return ()
        columns = _columns(ById(problem.space))
        missing = self._start_trials(problem, columns) - len(history.tried)
        if missing > 0 or not history.measured:
            tried = np.array(sorted(problem.space.index[config] for config in history.tried), dtype=np.intp)
            chosen = self._spread(columns, rows, tried, min(count, max(missing, 1)))
            return _suggestions(problem, ((row, "start trials are spread over the space") for row in chosen))
        with one_thread():
            own = score(history)
            if own is not None:
                model = _fitted(problem, history, columns, warped(-own))
                return _suggestions(problem, _by_score(model, rows, count))
            speeds = np.log([trial.samples_per_second for trial in history.measured])
            model = _fitted(problem, history, columns, -speeds)
            return _suggestions(problem, _by_saving(problem, history, remaining, model, rows=rows, count=count))

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """The trial limit, nothing more to try, or no trial that pays for itself."""
        if len(history) >= problem.max_trials:
            return problem.limit_of_trials_text
        if len(history.tried) == len(problem.space):
            return "every configuration was tried"
        if not open_rows(problem, history, remaining).any():
            return "no further trial fits in what remains"
        if best_fitting(problem, history, remaining) is None:
            return "nothing that may still be tried is likely to fit"
        return "no further trial is expected to pay for itself"

    def _start_trials(self, problem: Problem, columns: Columns) -> int:
        return self.start or min(max(3, columns.width + 1), max(1, problem.max_trials // 3))

    def _spread(self, columns: Columns, rows: Rows, tried: Rows, count: int) -> Iterator[int]:
        """Of a random sample, the row furthest from all tried rows; the very first row is random."""
        taken = tried
        for _ in range(count):
            rng = np.random.default_rng([self.seed, len(taken)])
            free = np.setdiff1d(rows, taken)
            sample = rng.choice(free, size=min(SPREAD_SAMPLE_CONFIGS, len(free)), replace=False)
            row = int(sample[0])
            if len(taken):
                row = int(sample[columns.squares(sample, taken).sum(axis=0).min(axis=1).argmax()])
            taken = np.append(taken, row)
            yield row


def score(history: History) -> Floats | None:
    """(n,) the user's score of each measured trial, larger is better; None if trials measure throughput."""
    scores = [trial.learned[-1].metric for trial in history.measured if trial.learned]
    return np.array(scores) if scores and len(scores) == len(history.measured) else None


def warped(values: Floats) -> Floats:
    """Values to minimise, the worse half on a logarithmic scale, so that one very bad trial does not flatten the rest.

    With m the median and h its distance from the best value: v <= m is unchanged,
    v > m becomes m + h ln(1 + (v - m) / h).
    """
    middle = float(np.median(values))
    half = middle - float(values.min())
    if not half > 0:
        return values
    return np.where(values > middle, middle + half * np.log1p(np.maximum(values - middle, 0.0) / half), values)


def _fitted(problem: Problem, history: History, columns: Columns, values: Floats) -> KnobPosterior:
    """The process over `values` to minimise; failures caused by a configuration count as the worst value."""
    index = problem.space.index
    bad = [index[failure.config] for failure in history.failures if failure.kind in CONFIG_FAILURES]
    rows = [*(index[trial.config] for trial in history.measured), *bad]
    errors = [*(trial.relative_error for trial in history.measured), *[0.0] * len(bad)]
    worst = float(values.max())
    return fit(
        columns,
        Observed(
            rows=np.array(rows, dtype=np.intp),
            values=np.append(values, [worst] * len(bad)),
            errors=np.array(errors),
        ),
    )


def _by_score(model: KnobPosterior, rows: Rows, count: int) -> Iterator[tuple[int, str]]:
    is_open = np.ones(len(rows), dtype=bool)
    for _ in range(count):
        mean, variance = model.predict(rows)
        # The posterior mean, not the measurement: the best of many noisy values is partly luck.
        least = float(model.predict(model.observed.rows)[0].min())
        gain = _log_improvement((least - mean) / np.sqrt(variance)) + 0.5 * np.log(variance)
        at = int(np.where(is_open, gain, -np.inf).argmax())
        yield int(rows[at]), "largest expected improvement"
        is_open[at] = False
        model = model.with_expected(int(rows[at]), float(mean[at]))


def _log_improvement(z: Floats) -> Floats:
    """ln(phi(z) + z Phi(z)), the log of the expected improvement in standard deviations; asymptotic for z < -6."""
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    near = np.log(np.maximum(density + z * ndtr(z), 1e-300))
    with np.errstate(divide="ignore"):
        far = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - 2 * np.log(np.abs(z))
    return np.asarray(np.where(z < -6, far, near))


def _by_saving(
    problem: Problem, history: History, remaining: Remaining, model: KnobPosterior, *, rows: Rows, count: int
) -> Iterator[tuple[int, str]]:
    """Trials with a positive expected saving net of their price, in the goal's unit, largest first."""
    incumbent = best_fitting(problem, history, remaining)
    rates = problem.dollars_per_second[rows]
    scale = np.log(problem.goal.scale(rates))
    fixed = np.log(problem.works[rows]) + np.log(problem.stretches[rows])
    startup = float(np.mean([trial.startup_seconds for trial in history.measured]))
    trial_seconds = problem.planned_trial_seconds[rows]
    prices = problem.goal.values(trial_seconds, trial_seconds * rates)
    log_cap = log_seconds_that_fit(problem, remaining)[rows]
    is_open = np.ones(len(rows), dtype=bool)
    for _ in range(count):
        log_slowness, variance = model.predict(rows)
        log_seconds = np.log(np.exp(log_slowness + fixed) + startup)
        if incumbent is not None:
            value = incumbent.value(problem)
            net = expected_saving(log_seconds + scale, variance, value, log_cap + scale) - prices
            reason = "expected to save more than its price"
        else:
            net = ndtr((log_cap - log_seconds) / np.sqrt(variance)) - LEAST_FIT_PROBABILITY
            reason = "nothing measured fits the limits yet; this has the highest probability of fitting"
        net = np.where(is_open, net, -np.inf)
        at = int(net.argmax())
        if not net[at] > 0:
            return
        yield int(rows[at]), reason
        is_open[at] = False
        model = model.with_expected(int(rows[at]), float(log_slowness[at]))


def _suggestions(problem: Problem, picks: Iterator[tuple[int, str]]) -> tuple[Suggestion, ...]:
    return tuple(Suggestion(config=problem.space.configs[row], reason=reason) for row, reason in picks)


@lru_cache(maxsize=8)
def _columns(space: ById[Space]) -> Columns:
    return Columns.of(space.value)
