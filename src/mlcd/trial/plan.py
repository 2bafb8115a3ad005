"""What it takes to finish the job on a measured deployment, and what may still be spent."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from mlcd.goal import Objective
from mlcd.problem import Problem
from mlcd.space import Config
from mlcd.trial.trial import History, Measurement
from mlcd.units import Usd

ROUNDING = 1e-9
"""Room for floating-point sums in a bound without noise."""

TIE = 0.01
"""Values that differ by less count as equal even without noise: nobody pays twice for a hundredth of the time."""


@lru_cache(maxsize=64)
def margin_sigmas(assurance: float) -> float:
    """z with Pr[N(0, 1) <= z] = assurance."""
    return float(ndtri(assurance))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Training to the end on `config`: expected, and at most (the upper bound at the problem's assurance).

    Serving: a million requests there, expected; and what the verification may take at most, for that is what must fit.
    """

    config: Config
    seconds: float
    usd: Usd
    worst_seconds: float
    worst_usd: Usd

    @classmethod
    def of(cls, problem: Problem, trial: Measurement) -> "Plan":
        """T = (start-up + S / speed) x stretch; the bound multiplies by exp(z x relative error) (algorithms: 1.3)."""
        if problem.verify_seconds is not None:
            return cls._serving(problem, trial, problem.verify_seconds)
        work = problem.work_of(trial.config)
        seconds = (trial.startup_seconds + work / trial.samples_per_second) * problem.stretch_of(trial.config)
        doubt = math.hypot(trial.relative_error, problem.work_error)
        worst = seconds * math.exp(margin_sigmas(problem.assurance) * doubt) * (1 + ROUNDING)
        price = problem.price(trial.config)
        return cls(
            config=trial.config,
            seconds=seconds,
            usd=price.for_seconds(seconds),
            worst_seconds=worst,
            worst_usd=price.for_seconds(worst),
        )

    @classmethod
    def _serving(cls, problem: Problem, trial: Measurement, verify_seconds: float) -> "Plan":
        rate = min(trial.samples_per_second, problem.goal.rate or math.inf)
        seconds, price = problem.work_samples / rate, problem.price(trial.config)
        return cls(
            config=trial.config,
            seconds=seconds,
            usd=price.for_seconds(seconds),
            worst_seconds=verify_seconds,
            worst_usd=price.for_seconds(verify_seconds),
        )

    def value(self, problem: Problem) -> float:
        """In the goal's unit."""
        return problem.goal.value(self.seconds, self.usd.dollars)


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """What the ledger says may still be spent, None where there is no limit.

    allowed  (N,) whether the ledger would authorise a trial of each configuration now
    guarded  False for a rival that does not look at limits: then everything is allowed, and `fits` counts the
             training alone against the whole limit
    """

    usd: Usd | None
    seconds: float | None
    allowed: NDArray[np.bool_]
    guarded: bool = True

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.usd is not None or self.seconds is not None

    def fits(self, plan: Plan) -> bool:
        """Whether the plan ends inside what is left: at its upper bound when guarded, as measured when not."""
        seconds, usd = (plan.worst_seconds, plan.worst_usd) if self.guarded else (plan.seconds, plan.usd)
        return (self.seconds is None or seconds <= self.seconds) and (self.usd is None or usd <= self.usd)


def tie(problem: Problem) -> float:
    """The relative difference under which two values count as equal: what two runs of one deployment differ by."""
    return max(TIE, problem.noise)


def plans(problem: Problem, history: History) -> tuple[Plan, ...]:
    """A plan for every measured deployment that does what the goal asks of it, in the order measured."""
    return tuple(Plan.of(problem, trial) for trial in history.measured if trial.meets(problem.goal))


def best_fitting(problem: Problem, history: History, remaining: Remaining) -> Plan | None:
    """The incumbent: of the measured deployments that fit what is left, the best in the goal's unit."""
    return best(problem, (plan for plan in plans(problem, history) if remaining.fits(plan)))


def best(problem: Problem, options: Iterable[Plan]) -> Plan | None:
    """The best plan in the goal's unit; of those within a `tie` of it, the best in the other unit."""
    plans = list(options)
    least = min((plan.value(problem) for plan in plans), default=0.0)
    close = (plan for plan in plans if plan.value(problem) <= least * (1 + tie(problem)))
    if problem.goal.minimize is Objective.COST:
        return min(close, key=lambda plan: (plan.seconds, plan.usd), default=None)
    return min(close, key=lambda plan: (plan.usd, plan.seconds), default=None)
