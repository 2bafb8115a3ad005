"""What would be trained on if the search ended now, and what a trial would take from that."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlcd.problem import Problem
from mlcd.trial.plan import Plan, Remaining, best_fitting
from mlcd.trial.trial import History
from mlcd.trial.watched import best_watched
from mlcd.units import Usd

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

SURE = 0.84
"""Where nothing fits at its upper bound, the least probability of fitting of a choice: one standard deviation."""
KEPT_SIGMAS = 1.0
"""A configuration that could be watched counts as fitting if it would with so many standard deviations to spare."""


@dataclass(frozen=True, kw_only=True)
class ChoiceNow:
    """The choice if the search ended now.

    plan      what fits at its upper bound; where nothing does, what is expected to fit; None if nothing is
    value     the choice's expected value in the goal's unit: less than the plan's if a watched training is better
    later     (N,) the value of a watched choice after a trial of each configuration, which leaves less for it; inf
              where it leaves too little; None where the choice is not watched
    certain   whether the plan fits at its upper bound
    """

    plan: Plan
    value: float
    later: Floats | None = None
    certain: bool = True


def choice_now(problem: Problem, history: History, remaining: Remaining, *, watched: bool) -> ChoiceNow | None:
    """The choice; None while nothing fits. `watched`: also trainings that are watched (mlcd.trial.watched)."""
    plan = remaining.training or best_fitting(problem, history, remaining)
    certain = None if plan is None else ChoiceNow(plan=plan, value=plan.value(problem))
    if remaining.training is not None or not watched:
        return certain
    better = best_watched(problem, history, remaining, plan)
    watch = None if better is None else better.watch
    if better is None or watch is None or (plan is None and watch.chance < SURE):
        return certain
    error = next(trial.relative_error for trial in history.measured if trial.config == better.plan.config)
    later = better.values_after(problem, remaining, error, problem.planned_trial_seconds, problem.planned_trial_dollars)
    if watch.fallback is not None:
        back = watch.fallback
        covered = _leaves(problem, remaining, back.worst_usd + watch.usd, back.worst_seconds + watch.seconds)
        later = np.where(covered, later, np.inf)
    bound = np.exp(KEPT_SIGMAS * problem.noise)
    kept = replace(better.plan, worst_seconds=better.plan.seconds * bound, worst_usd=better.plan.usd * bound)
    return ChoiceNow(plan=plan or kept, value=better.value(problem), later=later, certain=plan is not None)


def _leaves(problem: Problem, remaining: Remaining, usd: Usd, seconds: float) -> Mask:
    """(N,) whether so much remains after a trial of each configuration, at its worst."""
    mask = np.ones(len(problem.space), dtype=bool)
    if remaining.usd is not None:
        mask &= problem.worst_trial_micros <= (remaining.usd - usd).micros
    if remaining.seconds is not None:
        mask &= problem.worst_trial_seconds <= remaining.seconds - seconds
    return mask
