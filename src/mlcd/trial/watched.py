"""A watched training: it may start where it is expected to fit, though not certain to, while a way back is kept.

Most of a trial's error is the difference between two runs of one deployment. The training's own speed shows after as
long as a trial takes. So the training may start on a measured deployment whose upper bound does not fit what remains,
if afterwards another measured one still fits at its upper bound: the training moves there if the first turns out too
slow. Where nothing fits at its upper bound, it may start without a way back, and ends after that time if too slow.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from scipy.special import ndtr

from mlcd.problem import Problem
from mlcd.trial.plan import STOP_SECONDS, Plan, Remaining, best_fitting, plans
from mlcd.trial.trial import History
from mlcd.units import Usd

LEAST_CHANCE = 0.5
"""The least probability of fitting of a training without a way back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A training that is watched for its first `seconds`; they cost `usd`.

    chance    the probability that it fits
    fallback  where it moves if it does not; None: nowhere
    """

    plan: Plan
    seconds: float
    usd: Usd
    chance: float
    fallback: Plan | None

    def value(self, problem: Problem) -> float:
        """The expected value in the goal's unit; without a fallback, the value if it fits for each unit of chance."""
        there = self.plan.value(problem)
        if self.fallback is None:
            return there / self.chance
        lost = problem.goal.value(self.seconds, self.usd.dollars)
        return self.chance * there + (1 - self.chance) * (lost + self.fallback.value(problem))


def watch_price(problem: Problem, plan: Plan) -> tuple[float, Usd]:
    """Seconds after which the speed of a training on the plan's deployment is known, and what they cost.

    As long as a trial there takes, and a little to save and to release the nodes.
    """
    seconds = problem.trial.planned_seconds(plan.config.nodes) + STOP_SECONDS
    return seconds, problem.price(plan.config).for_seconds(seconds)


def may_be_watched(problem: Problem, remaining: Remaining) -> bool:
    """Whether a training may start that is not certain to fit: if mlcd watches it, under a limit, with exact work."""
    exact = problem.work_known and problem.work_error == 0 and problem.target is None and problem.batching is None
    return exact and problem.watched and remaining.guarded and remaining.is_limited and problem.verify_seconds is None


def watched(problem: Problem, history: History, remaining: Remaining) -> Iterator[Watched]:
    """The measured deployments that are expected to fit what remains but not certain to, with their way back."""
    if not may_be_watched(problem, remaining):
        return
    known = plans(problem, history)
    nothing_fits = not any(remaining.fits(plan) for plan in known)
    for plan in known:
        if remaining.fits(plan) or not expected_to_fit(plan, remaining):
            continue
        seconds, usd = watch_price(problem, plan)
        later = less(remaining, seconds, usd)
        fallback = best_fitting(problem, History(tuple(t for t in history if t.config != plan.config)), later)
        if fallback is not None or nothing_fits:
            chance = _chance(problem, plan, remaining)
            yield Watched(plan=plan, seconds=seconds, usd=usd, chance=chance, fallback=fallback)


def best_watched(problem: Problem, history: History, remaining: Remaining, certain: Plan | None) -> Watched | None:
    """The best watched training, if it is expected to be better than `certain`, which fits; None if none is."""
    found = [
        each
        for each in watched(problem, history, remaining)
        if certain is not None or (each.fallback is None and each.chance >= LEAST_CHANCE)
    ]
    best = min(found, key=lambda each: each.value(problem), default=None)
    if best is None or (certain is not None and best.value(problem) >= certain.value(problem)):
        return None
    return best


def expected_to_fit(plan: Plan, remaining: Remaining) -> bool:
    """Whether the plan fits what remains if it goes as measured."""
    return remaining.fits(replace(plan, worst_seconds=plan.seconds, worst_usd=plan.usd))


def within(plan: Plan, remaining: Remaining) -> Plan:
    """The plan with an upper bound of at most what remains: a training that is watched ends there."""
    return replace(
        plan,
        worst_seconds=plan.worst_seconds if remaining.seconds is None else min(plan.worst_seconds, remaining.seconds),
        worst_usd=plan.worst_usd if remaining.usd is None else min(plan.worst_usd, remaining.usd),
    )


def less(remaining: Remaining, seconds: float, usd: Usd) -> Remaining:
    """What remains after so much time and money."""
    return replace(
        remaining,
        usd=None if remaining.usd is None else remaining.usd - usd,
        seconds=None if remaining.seconds is None else remaining.seconds - seconds,
    )


def _chance(problem: Problem, plan: Plan, remaining: Remaining) -> float:
    """The probability that the plan fits: how far the tighter limit is beyond it, over the measurement's error."""
    room = math.inf
    if remaining.seconds is not None:
        room = min(room, remaining.seconds / plan.seconds)
    if remaining.usd is not None:
        room = min(room, remaining.usd.dollars / max(plan.usd.dollars, 1e-9))
    slow = math.log1p(problem.slowdown)
    return float(ndtr((math.log(room) - slow) / max(problem.noise, 1e-6)))
