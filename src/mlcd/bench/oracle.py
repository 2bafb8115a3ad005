"""The bound with one trial: what a search would reach that knew where to look."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from mlcd.bench.case import TrainTruth
from mlcd.problem import Problem
from mlcd.search.auto_settings import AutoSettings
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import History, Suggestion

KEPT_SIGMAS = 3.0
"""Where work is kept, the rest is planned from the trial's noisy speed: the choice must fit at so many deviations."""


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """Knows the truth: tries the configuration that is best with its trial paid, and trains there.

    Only a benchmark can run it. Its choice keeps the limits, trial included; if none does, it makes no trial and
    recommends nothing.
    """

    name: ClassVar[str] = "oracle"
    truth: TrainTruth
    seed: int = 0

    @property
    def least_trial(self) -> float:
        """See EndsTrials: its trial ends as early as one of auto."""
        return AutoSettings().least_trial

    @property
    def guarded(self) -> bool:
        """False: it knows what fits and needs no reserve."""
        return False

    @cached_property
    def _training_seconds(self) -> tuple[float | None, ...]:
        """Of the whole training on each configuration; with the restart after its trial where that is part of it."""
        problem = self.truth.problem
        start = problem.restart_seconds if problem.keeps_work else 0.0
        return tuple(None if seconds is None else seconds + start for seconds in self.truth.seconds)

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:  # noqa: ARG002
        """The best configuration, once."""
        row = self._best(problem)
        if row is None or len(history):
            return ()
        return (Suggestion(config=problem.space.configs[row], reason="known to be the best"),)

    def recommend(self, problem: Problem, history: History, remaining: Remaining) -> Plan | None:  # noqa: ARG002
        """The same, with its true time."""
        row = self._best(problem)
        if row is None:
            return None
        seconds, price = self._training_seconds[row] or 0.0, problem.usd_per_hour[row]
        usd = price.for_seconds(seconds)
        config = problem.space.configs[row]
        return Plan(config=config, seconds=seconds, usd=usd, worst_seconds=seconds, worst_usd=usd)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:  # noqa: ARG002
        """One trial was made, or nothing fits."""
        return "the best configuration had its one trial" if len(history) else "nothing fits with one trial"

    def _best(self, problem: Problem) -> int | None:
        """Least trial plus training in the goal's unit, of those within the limits at the longest trial."""
        goal = problem.goal
        training = np.array([np.inf if seconds is None else seconds for seconds in self._training_seconds])
        rates = problem.dollars_per_second
        trial = problem.planned_trial_seconds
        slowest = training
        if problem.keeps_work:  # the trial's work is done
            training = training - np.minimum(trial, training)
            slowest = training * np.exp(KEPT_SIGMAS * problem.noise)
        longest = slowest + problem.worst_trial_seconds
        fits = np.isfinite(training)
        if goal.deadline_seconds is not None:
            fits &= longest <= goal.deadline_seconds
        if goal.budget is not None:
            fits &= longest * rates <= goal.budget.dollars
        if not fits.any():
            return None
        value = goal.values(trial + training, (trial + training) * rates)
        return int(np.where(fits, value, np.inf).argmin())
