"""The time and money to finish the job on a measured deployment, and what may still be spent."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from mlcd.goal import Objective
from mlcd.problem import STOP_SECONDS, Problem
from mlcd.space import Config
from mlcd.trial.trial import History, Measurement
from mlcd.units import HOUR, MOST_SECONDS, MOST_USD, ZERO, Usd

Floats = NDArray[np.float64]

ROUNDING_MARGIN = 1e-9
"""Relative margin for floating-point sums in a bound without noise."""

SLOW_RUN_ASSURANCE = 0.999
"""The confidence that a training slower by `Problem.slowdown` fits. Less than the default assurance, because such a
training is an exception itself. For noise of 6% or more, the bound at the default assurance is the larger one."""

STOP_SHARE = 0.03
"""Time kept at the end of the budget to save and release the nodes: a share of what is left, at least STOP_SECONDS."""

MOST_STOP_SECONDS = 300.0
"""And at most this: saving may take two minutes (mlcd.clouds.job.SAVE_SECONDS), releasing rented nodes some more."""

MIN_TIE_FRACTION = 0.01
"""Values that differ by a smaller fraction count as equal even without noise: 1% is not worth a higher cost."""


@lru_cache(maxsize=64)
def margin_sigmas(assurance: float) -> float:
    """z with Pr[N(0, 1) <= z] = assurance."""
    return float(ndtri(assurance))


def log_margin(problem: Problem, relative_error: float) -> float:
    """ln of upper bound / expected time for a speed with this relative error.

    The larger of z(assurance) x error, and ln(1 + slowdown) + z(SLOW_RUN_ASSURANCE) x error where there is a slowdown.
    """
    sigmas = margin_sigmas(problem.assurance)
    if not problem.slowdown:
        return sigmas * relative_error
    slow = math.log1p(problem.slowdown) + min(sigmas, margin_sigmas(SLOW_RUN_ASSURANCE)) * relative_error
    return max(sigmas * relative_error, slow)


def error_within(problem: Problem, margin: float) -> float:
    """The inverse of `log_margin`: the relative error for which it gives `margin`; 0 if it gives more for any error."""
    sigmas = margin_sigmas(problem.assurance)
    error = margin / sigmas
    if problem.slowdown:
        slow = (margin - math.log1p(problem.slowdown)) / min(sigmas, margin_sigmas(SLOW_RUN_ASSURANCE))
        error = min(error, slow)
    return max(error, 0.0)


def seconds_to_stop(seconds_left: Floats | float) -> Floats:
    """How long saving a training that has so many seconds left may take, and releasing its nodes."""
    share = STOP_SHARE * np.asarray(seconds_left, dtype=np.float64)
    return np.maximum(STOP_SECONDS, np.minimum(share, MOST_STOP_SECONDS))


def stop_at(seconds_left: float) -> float:
    """When to stop a training that has so many seconds left, so that it is saved and its nodes are released in time."""
    return float(seconds_left - seconds_to_stop(seconds_left))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Time and money to train to the end on `config`: expected, and worst (the upper bound at the problem's assurance).

    moved_usd  the part of both that is for bringing the data there once; 0 for a training that stays on its nodes

    Serving: expected for a million requests; worst for the verification, because that is what must fit the limits.
    """

    config: Config
    seconds: float
    usd: Usd
    worst_seconds: float
    worst_usd: Usd
    moved_usd: Usd = ZERO

    @classmethod
    def of(cls, problem: Problem, trial: Measurement) -> "Plan":
        """T = (start-up + S / speed) x stretch; the bound is T x exp(log_margin) (algorithms: 1.3).

        On spot nodes, T is what it takes with the interruptions to be expected, and the bound assumes as many as
        `assurance` says, each at its most (mlcd.interruptions). Each brings the data to new nodes again.

        With a slowdown, a training that takes T x (1 + slowdown) also ends before `stop_at` of the bound.
        """
        if problem.verify_seconds is not None:
            return cls._serving(problem, trial, problem.verify_seconds)
        work = problem.work_of(trial.config)
        move = problem.move_to(trial.config)
        startup_seconds = trial.startup_seconds + move.seconds - min(move.trial_seconds, trial.startup_seconds)
        seconds = (startup_seconds + work / trial.samples_per_second) * problem.stretch_of(trial.config)
        relative_error = math.hypot(trial.relative_error, problem.work_error_of(trial.config))
        worst = seconds * math.exp(log_margin(problem, relative_error)) * (1 + ROUNDING_MARGIN)
        if problem.slowdown:
            slow = seconds * (1 + problem.slowdown)
            worst = max(worst, slow + STOP_SECONDS, min(slow / (1 - STOP_SHARE), slow + MOST_STOP_SECONDS))
        spot, again, worst_again = problem.interruptions, 0.0, 0
        if spot is not None and trial.config.is_spot:
            margin, training = worst / seconds, seconds - startup_seconds
            restart = max(startup_seconds, problem.restart_seconds) * margin
            worst, worst_again = spot.worst(trial.config, restart, training * margin, assurance=problem.assurance)
            seconds = spot.expected_seconds(trial.config, startup_seconds, training)
            again = spot.per_second(trial.config) * seconds
        price = problem.price(trial.config)
        return cls(
            config=trial.config,
            seconds=seconds,
            usd=price.for_seconds(seconds) + Usd.of(move.usd.dollars * (1 + again)),
            worst_seconds=worst,
            worst_usd=price.for_seconds(worst) + move.usd * (1 + worst_again),
            moved_usd=move.usd,
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
            worst_usd=problem.lease_price(trial.config).for_seconds(verify_seconds),
        )

    @property
    def is_bookable(self) -> bool:
        """Whether the books can hold it: a training of more is a mistake in the job's numbers, whatever its limits."""
        return self.worst_seconds <= MOST_SECONDS and self.worst_usd <= MOST_USD

    def value(self, problem: Problem) -> float:
        """The plan's value in the goal's unit; smaller is better."""
        return problem.goal.value(self.seconds, self.usd.dollars)


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """What may still be spent, according to the ledger; None if there is no limit.

    allowed  (N,) whether the ledger would authorise a trial of each configuration now
    guarded  False for a rival strategy that ignores limits: then everything is allowed, and `fits` compares the
             training alone with the whole limit
    training the plan for the rest of the work where the training runs already, without a start-up; None before that
    seconds_per_usd  what money is worth to a training beside the trials: how much sooner it ends for every dollar more,
             part of it on a faster measured deployment that what remains does not pay for as a whole
    """

    usd: Usd | None
    seconds: float | None
    allowed: NDArray[np.bool_]
    guarded: bool = True
    training: Plan | None = None
    seconds_per_usd: float = 0.0

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.usd is not None or self.seconds is not None

    def fits(self, plan: Plan) -> bool:
        """Whether the plan fits what remains: at its upper bound if guarded, as measured if not."""
        seconds, usd = (plan.worst_seconds, plan.worst_usd) if self.guarded else (plan.seconds, plan.usd)
        if not plan.is_bookable:
            return False
        return (self.seconds is None or seconds <= self.seconds) and (self.usd is None or usd <= self.usd)


def tie(problem: Problem) -> float:
    """The relative difference below which two values count as equal: the spread of two runs of one deployment."""
    return max(MIN_TIE_FRACTION, problem.noise)


def plans(problem: Problem, history: History) -> tuple[Plan, ...]:
    """A plan for every measured deployment that meets the goal's latency limit and rate, in the order measured."""
    return tuple(_plan(problem, trial) for trial in history.measured if trial.meets(problem.goal))


def _plan(problem: Problem, trial: Measurement) -> Plan:
    """`Plan.of`, once for each trial: a run of N trials asks N times for all of them."""
    known = problem.memo.get(id(trial))
    if known is None or known[0] is not trial:
        known = problem.memo[id(trial)] = (trial, Plan.of(problem, trial))
    made: Plan = known[1]
    return made


def best_fitting(problem: Problem, history: History, remaining: Remaining) -> Plan | None:
    """The incumbent: the best in the goal's unit of the measured deployments that fit what remains."""
    return best(problem, (plan for plan in plans(problem, history) if remaining.fits(plan)))


def speed_to_beat(problem: Problem, history: History, config: Config) -> float:
    """Samples a second below which `config` is not chosen, but for start-up; 0 where nothing says so.

    Under limits, what the work needs to be done within all of them: what is best of the measured ones may not fit.
    Without limits, the speed at which a training there equals the best measured one.
    """
    goal = problem.goal
    if not problem.work_known:
        return 0.0
    work = problem.work_of(config) * problem.stretch_of(config)
    if goal.is_limited:
        in_time = 0.0 if goal.deadline_seconds is None else 1 / goal.deadline_seconds
        paid = 0.0 if goal.budget is None else problem.price(config).dollars / HOUR / goal.budget.dollars
        return work * max(in_time, paid)
    least = min((plan.value(problem) for plan in plans(problem, history)), default=0.0)
    per_second = float(goal.scale(problem.dollars_per_second)[problem.space.index[config]])
    return work * per_second / least if least > 0 else 0.0


def best(problem: Problem, options: Iterable[Plan]) -> Plan | None:
    """The best plan in the goal's unit; of those within a `tie` of it, the best in the other unit."""
    plans = list(options)
    least = min((plan.value(problem) for plan in plans), default=0.0)
    close = (plan for plan in plans if plan.value(problem) <= least * (1 + tie(problem)))
    if problem.goal.minimize is Objective.COST:
        return min(close, key=lambda plan: (plan.seconds, plan.usd), default=None)
    return min(close, key=lambda plan: (plan.usd, plan.seconds), default=None)
