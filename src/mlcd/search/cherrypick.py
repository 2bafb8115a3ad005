"""CherryPick (Alipourfard et al., NSDI 2017), as the paper runs it: constrained expected improvement, early stop."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from mlcd.errors import BadInput
from mlcd.models.speed import SpeedModel, speed_model
from mlcd.problem import Problem
from mlcd.search.acquisition import expected_saving
from mlcd.search.candidates import open_rows
from mlcd.search.first_looks import spread_start
from mlcd.search.stopping import small_gain_ending
from mlcd.search.strategy import MeasuredStrategy, at_least
from mlcd.space.placed import matches
from mlcd.trial.plan import Remaining, best, best_fitting, plans
from mlcd.trial.trial import History, Suggestion

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CherryPick(MeasuredStrategy):
    """`start` quasi-random trials, then expected improvement times the probability that the training alone fits.

    Stops when the expected improvement is under `threshold` of the best value and at least `least` trials were made.
    `types` keeps only instance types that match one of several globs joined by `+`: the prior knowledge that the paper
    grants it. Ignores limits on search plus run, and the price of trials.
    """

    name: ClassVar[str] = "cherrypick"
    start: int = 3
    least: int = 6
    steps: int = 30
    threshold: float = 0.1
    types: str = "*"

    def __post_init__(self) -> None:
        at_least(1, start=self.start, least=self.least, steps=self.steps)
        at_least(0, threshold=self.threshold)

    @property
    def guarded(self) -> bool:
        """False: it ignores what the search itself spends."""
        return False

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """The trial limit, or a small expected improvement."""
        ending = small_gain_ending(self.name, history, steps=self.steps, threshold=self.threshold)
        fits = len(history.tried) >= self.steps or best_fitting(problem, history, remaining)
        return ending if fits else f"{ending}, which does not fit"

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """Quasi-random trials first, then the largest constrained expected improvement."""
        candidates = open_rows(problem, history, remaining) & self._known_good(problem)
        count = min(count, self.steps - len(history.tried), int(candidates.sum()))
        if count <= 0:
            return ()
        model = speed_model(problem, history)
        if model is None or len(history.tried) < self.start:
            missing = min(count, max(self.start - len(history.tried), 1))
            return spread_start(problem, history, candidates, seed=self.seed, count=missing)
        score, gain, target = self._score(problem, history, model, remaining)
        wanted = np.where(candidates, score, -np.inf)
        if len(history.tried) >= self.least and gain[int(wanted.argmax())] < self.threshold * target:
            return ()
        rows = np.argsort(-wanted, kind="stable")[:count]
        reason = "largest EI times probability of fitting"
        return tuple(Suggestion(config=problem.space.configs[row], reason=reason) for row in rows)

    def _known_good(self, problem: Problem) -> NDArray[np.bool_]:
        globs = self.types.split("+")
        if all(knob.name != "instance" for knob in problem.space.knobs):
            raise BadInput(
                "search.strategy: cherrypick chooses among instance types, and here are none; choose heterbo"
            )
        known = np.array([any(matches(c.instance, glob) for glob in globs) for c in problem.space], dtype=bool)
        if not known.any():
            names = ", ".join(sorted({config.instance for config in problem.space}))
            raise BadInput(f"search.strategy: cherrypick:types: none matches {self.types!r}; allowed: {names}")
        return known

    def _score(
        self, problem: Problem, history: History, model: SpeedModel, remaining: Remaining
    ) -> tuple[Floats, Floats, float]:
        """(EI x probability of fitting, EI, incumbent's value); only the training counts against the limits."""
        mean = model.log_seconds + np.log(problem.goal.scale(problem.dollars_per_second))
        options = plans(problem, history)
        incumbent = best(problem, (p for p in options if remaining.fits(p))) or best(problem, options)
        target = incumbent.value(problem) if incumbent else float(np.exp(mean.min()))
        gain = expected_saving(mean, model.variance, target)
        chance = np.ones_like(gain)
        deviation = np.sqrt(model.variance)
        goal = problem.goal
        if goal.deadline_seconds is not None:
            chance = chance * ndtr((np.log(goal.deadline_seconds) - model.log_seconds) / deviation)
        if goal.budget is not None:
            log_usd = model.log_seconds + np.log(problem.dollars_per_second)
            chance = chance * ndtr((np.log(goal.budget.dollars) - log_usd) / deviation)
        return gain * chance, gain, target
