"""Conventional Bayesian optimisation, the paper's ConvBO: every trial is assumed to cost the same."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from mlcd.models.speed import SpeedModel, speed_model
from mlcd.problem import Problem
from mlcd.search.acquisition import expected_rise, expected_saving
from mlcd.search.candidates import open_rows
from mlcd.search.stopping import small_gain_ending
from mlcd.search.strategy import MeasuredStrategy, at_least
from mlcd.trial.plan import Remaining, plans
from mlcd.trial.trial import History, Suggestion

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ConvBO(MeasuredStrategy):
    """`start` random trials, then the largest expected improvement, until it is small.

    target  what improves. goal: the goal's value, which favours ConvBO; speed: the training speed whatever the goal, as
            in equation 4
    Stops when the expected improvement is under `threshold` of the best, or after `steps` trials. Ignores limits and
    the price of trials.
    """

    name: ClassVar[str] = "convbo"
    acquisition: Literal["ei", "ucb", "poi"] = "ei"
    target: Literal["goal", "speed"] = "goal"
    start: int = 2
    steps: int = 15
    threshold: float = 0.01

    def __post_init__(self) -> None:
        at_least(1, start=self.start, steps=self.steps)
        at_least(0, threshold=self.threshold)

    @property
    def guarded(self) -> bool:
        """False: it ignores limits."""
        return False

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:  # noqa: ARG002
        """The trial limit, or a small expected improvement."""
        return small_gain_ending(self.name, history, steps=self.steps, threshold=self.threshold)

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """Random trials first, then the best by the acquisition."""
        candidates = open_rows(problem, history, remaining)
        count = min(count, self.steps - len(history.tried))
        if not candidates.any() or count <= 0:
            return ()
        model = speed_model(problem, history)
        if model is None or len(history.tried) < self.start:
            return self._first(problem, history, candidates, min(count, max(self.start - len(history.tried), 1)))
        return self._by_acquisition(problem, history, model, candidates, count)

    def _first(
        self, problem: Problem, history: History, candidates: NDArray[np.bool_], count: int
    ) -> tuple[Suggestion, ...]:
        rows = np.flatnonzero(candidates)
        rng = np.random.default_rng([self.seed, len(history)])
        chosen = rng.choice(rows, size=min(count, len(rows)), replace=False)
        return tuple(Suggestion(config=problem.space.configs[row], reason="a random start") for row in chosen)

    def _by_acquisition(
        self, problem: Problem, history: History, model: SpeedModel, candidates: NDArray[np.bool_], count: int
    ) -> tuple[Suggestion, ...]:
        score, share = self._score(problem, history, model)
        wanted = np.where(candidates, score, -np.inf)
        if share[int(wanted.argmax())] < self.threshold:
            return ()
        rows = [row for row in np.argsort(-wanted, kind="stable")[:count] if candidates[row]]
        reason = f"largest {self.acquisition.upper()}"
        return tuple(Suggestion(config=problem.space.configs[row], reason=reason) for row in rows)

    def _score(self, problem: Problem, history: History, model: SpeedModel) -> tuple[Floats, Floats]:
        """(acquisition to maximise, expected improvement as a share of the best so far), both (N,)."""
        deviation = np.sqrt(model.variance)
        if self.target == "speed":
            fastest = max(trial.samples_per_second for trial in history.measured)
            better = (model.log_speed - np.log(fastest)) / deviation
            share = expected_rise(model.log_speed, model.variance, fastest) / fastest
        else:
            mean = model.log_seconds + np.log(problem.goal.scale(problem.dollars_per_second))
            least = min(plan.value(problem) for plan in plans(problem, history))
            better = (np.log(least) - mean) / deviation
            share = expected_saving(mean, model.variance, least) / least
        if self.acquisition == "ucb":
            return better * deviation + 2 * deviation, share
        return (ndtr(better) if self.acquisition == "poi" else share), share
