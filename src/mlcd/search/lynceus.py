"""Lynceus (Casimiro et al., ICDCS 2020): improvement for its price, looking a few trials ahead."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from mlcd.models.speed import SpeedModel, speed_model
from mlcd.problem import Problem
from mlcd.search.candidates import log_seconds_that_fit, open_rows
from mlcd.search.first_looks import spread_start
from mlcd.search.strategy import MeasuredStrategy, at_least
from mlcd.trial.plan import Remaining, best_fitting, plans
from mlcd.trial.trial import History, Suggestion

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

MOST_ROOTS = 48
"""Configurations from which paths start, and to which they lead: the best by the improvement for its price alone."""
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(3)
"""Gauss-Hermite: outcomes of a trial in standard deviations from its mean, with their weights (to be normalised)."""
FAR_SDS = 3.0
"""While nothing fits, the best value counts as the worst measured one and this many of the largest deviations more."""


@dataclass(frozen=True, kw_only=True)
class Lynceus(MeasuredStrategy):
    """`start` quasi-random trials, then the first trial of the path with the largest improvement for its price.

    A path is a trial, an outcome of it, and the trial that is then best, `horizon` times; later steps count `discount`
    times less each. Ends when the expected improvement of every trial is under `threshold` of the best value.
    """

    name: ClassVar[str] = "lynceus"
    start: int = 3
    horizon: int = 2
    discount: float = 0.9
    threshold: float = 0.1
    steps: int = 30

    def __post_init__(self) -> None:
        at_least(1, start=self.start, steps=self.steps)
        at_least(0, horizon=self.horizon, discount=self.discount, threshold=self.threshold)
        if self.horizon > 2:
            raise ValueError(f"horizon must be at most 2 (got {self.horizon})")
        if self.discount > 1:
            raise ValueError(f"discount must be at most 1 (got {self.discount})")

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """The trial limit, the budget of the search, or a small expected improvement."""
        if len(history.tried) >= self.steps:
            return f"all {self.steps} trials of {self.name} were made"
        if not open_rows(problem, history, remaining).any():
            return "no further trial fits in what remains"
        return f"the expected improvement is under {self.threshold:.0%} of the best"

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """Quasi-random trials first, then the starts of the best paths."""
        candidates = open_rows(problem, history, remaining)
        count = min(count, self.steps - len(history.tried), int(candidates.sum()))
        if count <= 0:
            return ()
        model = speed_model(problem, history)
        if model is None or len(history.tried) < self.start:
            missing = min(count, max(self.start - len(history.tried), 1))
            return spread_start(problem, history, candidates, seed=self.seed, count=missing)
        state = _state(problem, history, remaining, model, np.flatnonzero(candidates))
        gain = state.gains(state.mean, state.variance, np.array(state.log_best))
        is_known = best_fitting(problem, history, remaining) is not None
        if is_known and gain.max() < self.threshold * np.exp(state.log_best):
            return ()
        worth = self._worth(state, gain)
        rows = state.rows[np.argsort(-worth, kind="stable")[:count]]
        ahead = f", looking {self.horizon} trials ahead" if self.horizon else ""
        reason = f"largest improvement for its price{ahead}"
        return tuple(Suggestion(config=problem.space.configs[row], reason=reason) for row in rows)

    def _worth(self, state: "_State", gain: Floats) -> Floats:
        """(M,) reward over price of the path that starts with each configuration."""
        reward, price = gain, state.prices
        if self.horizon >= 1:
            after = state.after_each()
            gains = state.gains(after.mean, after.variance, after.log_best)
            next_ = self._taken(gains / state.prices, after.open)
            deeper, deeper_price = _at(gains, next_), state.prices[next_]
            if self.horizon == 2:
                last = state.after_two(after, next_)
                gains = state.gains(last.mean, last.variance, last.log_best)
                third = self._taken(gains / state.prices, last.open)
                deeper = deeper + self.discount * (_at(gains, third) @ state.weights)
                deeper_price = deeper_price + self.discount * (state.prices[third] @ state.weights)
            reward = reward + self.discount * (deeper @ state.weights)
            price = price + self.discount * (deeper_price @ state.weights)
        return np.asarray(reward / price)

    @staticmethod
    def _taken(score: Floats, is_open: NDArray[np.bool_]) -> Rows:
        return np.asarray(np.where(is_open, score, -np.inf).argmax(axis=-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _After:
    """Beliefs after imagined trials, over the same M configurations: mean, variance, best value; leading axes vary."""

    mean: Floats
    variance: Floats
    log_best: Floats
    open: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """What is believed of M configurations: ln of the goal's value, jointly normal.

    log_cap   ln of the largest value that still fits
    log_best  ln of the best measured value that fits
    prices    of a trial, in the goal's unit
    """

    rows: Rows
    mean: Floats
    covariance: Floats
    log_cap: Floats
    log_best: float
    prices: Floats
    error: float

    @property
    def weights(self) -> Floats:
        return np.asarray(WEIGHTS / WEIGHTS.sum())

    @property
    def variance(self) -> Floats:
        return np.asarray(np.maximum(np.diag(self.covariance), 1e-12))

    def gains(self, mean: Floats, variance: Floats, log_best: Floats) -> Floats:
        """E[(best - V)^+] Pr[V fits] of each configuration; leading axes may vary."""
        deviation = np.sqrt(variance)
        bound = log_best[..., None]
        d = (bound - mean) / deviation
        saving = np.exp(bound) * ndtr(d) - np.exp(mean + variance / 2) * ndtr(d - deviation)
        return np.asarray(np.maximum(saving, 0.0) * ndtr((self.log_cap - mean) / deviation))

    def after_each(self) -> _After:
        """(M, 3, M): after a trial of each configuration with each outcome."""
        spread = np.sqrt(self.variance + self.error**2)
        outcome = self.mean[:, None] + spread[:, None] * NODES
        shift = (NODES[None, :] / spread[:, None])[..., None] * self.covariance[:, None, :]
        variance = self.variance - self.covariance**2 / (self.variance + self.error**2)[:, None]
        fits = outcome <= self.log_cap[:, None]
        return _After(
            mean=self.mean + shift,
            variance=np.maximum(variance, 1e-12)[:, None, :],
            log_best=np.where(fits, np.minimum(outcome, self.log_best), self.log_best),
            open=~np.eye(len(self.rows), dtype=bool)[:, None, :],
        )

    def after_two(self, first: _After, second: Rows) -> _After:
        """(M, 3, 3, M): after the trial `second` (M, 3) too, with each outcome of that."""
        size = len(self.rows)
        at = np.arange(size)[:, None]
        own = (self.variance + self.error**2)[:, None]
        # The covariance with the second, after the first: k(a, b) - k(a, x) k(x, b) / (k(x, x) + error^2).
        along = self.covariance[second] - self.covariance[:, None, :] * (self.covariance[at, second] / own)[..., None]
        variance = np.broadcast_to(first.variance, along.shape)
        total = np.maximum(np.take_along_axis(variance, second[..., None], axis=-1)[..., 0], 1e-12) + self.error**2
        spread = np.sqrt(total)
        middle = np.take_along_axis(first.mean, second[..., None], axis=-1)[..., 0]
        outcome = middle[..., None] + spread[..., None] * NODES
        mean = first.mean[:, :, None, :] + (NODES / spread[..., None])[..., None] * along[:, :, None, :]
        left = np.maximum(variance - along**2 / total[..., None], 1e-12)[:, :, None, :]
        fits = outcome <= self.log_cap[second][..., None]
        best = first.log_best[..., None]
        taken = np.zeros((size, 3, size), dtype=bool)
        taken[at, np.arange(3)[None, :], second] = True
        return _After(
            mean=mean,
            variance=left,
            log_best=np.where(fits, np.minimum(outcome, best), best),
            open=(first.open & ~taken)[:, :, None, :],
        )


def _at(values: Floats, choice: Rows) -> Floats:
    return np.asarray(np.take_along_axis(values, choice[..., None], axis=-1)[..., 0])


def _state(problem: Problem, history: History, remaining: Remaining, model: SpeedModel, rows: Rows) -> _State:
    """The beliefs about the MOST_ROOTS best of the rows by the improvement for its price."""
    scale = np.log(problem.goal.scale(problem.dollars_per_second))
    mean = model.log_seconds + scale
    seconds = problem.planned_trial_seconds
    prices = problem.goal.values(seconds, seconds * problem.dollars_per_second)
    incumbent = best_fitting(problem, history, remaining)
    if incumbent is not None:
        log_best = float(np.log(incumbent.value(problem)))
    else:
        worst = max(plan.value(problem) for plan in plans(problem, history))
        log_best = float(np.log(worst) + FAR_SDS * np.sqrt(model.variance.max()))
    log_cap = log_seconds_that_fit(problem, remaining) + scale

    def state(chosen: Rows, covariance: Floats) -> _State:
        return _State(
            rows=chosen,
            mean=mean[chosen],
            covariance=covariance,
            log_cap=log_cap[chosen],
            log_best=log_best,
            prices=prices[chosen],
            error=problem.noise,
        )

    everywhere = state(rows, np.zeros((0, 0)))
    gain = everywhere.gains(everywhere.mean, model.variance[rows], np.array(log_best))
    kept = np.sort(rows[np.argsort(-gain / prices[rows], kind="stable")[:MOST_ROOTS]])
    return state(kept, model.posterior.covariance(kept))
