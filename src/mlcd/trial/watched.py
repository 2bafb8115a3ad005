"""A watched training: it may start where it is expected to fit but not certain to, while a certain fallback is kept.

Most of a trial's error is the difference between two runs of one deployment (`Problem.noise`). The training's own
speed shows after about as long as a trial takes: the look. So a training may start on a measured deployment whose upper
bound does not fit what remains, if another measured one fits at its upper bound even when the look brought nothing. The
training moves there if the look shows that it is too slow. Where nothing fits at its upper bound, it may start without
a fallback, and ends after the look if it is too slow.

On spot nodes, what is uncertain is how often they are taken away. The look is then as late as the fallback, which is on
demand, allows: had nothing been saved by then, it would just fit. By then something is saved, and the look is renewed.
Where nothing fits for certain, on demand neither, a training on spot nodes goes on without a fallback as others do;
once it has begun, with every strategy, because what is done would be of no use otherwise.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from mlcd.problem import Problem
from mlcd.space import Config
from mlcd.trial.plan import Plan, Remaining, best_fitting, plans, seconds_to_stop
from mlcd.trial.trial import History, Measurement
from mlcd.units import HOUR, ZERO, Usd

LEAST_TRAINING_SECONDS = 10.0
"""A look takes at least so long after the start: on real nodes a speed is known 5 s after the first sample, and the
next start may be slower than the trial's."""

LEAST_CHANCE = 0.5
"""The least probability of fitting of a watched training: it fits if it is as fast as measured."""

_NO_ROOM = 1e-300
"""Of a training: its logarithm is finite, and its probability of fitting is 0."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How a training is watched that is not certain to fit.

    seconds   the look: so long after its start, its own speed decides whether it stays
    usd       what the look costs
    chance    the probability that it fits, when it was chosen
    fallback  where it moves if it is too slow, for all of the work that is left at its start; None: nowhere, it ends
    renews    on spot nodes: it stays after the look as long as an on-demand deployment is certain to fit, and is looked
              at again when that ends
    """

    seconds: float
    usd: Usd
    chance: float
    fallback: Plan | None = None
    renews: bool = False

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and self.usd.micros >= 0 and 0 <= self.chance <= 1):
            raise ValueError("a look takes time, costs at least $0, and has a chance between 0 and 1")

    def is_covered(self, remaining: Remaining) -> bool:
        """Whether what remains covers the look and, after it, the fallback at its upper bound."""
        later = less(remaining, self.seconds, self.usd)
        if self.fallback is not None:
            return later.fits(self.fallback)
        return (later.usd is None or later.usd.micros >= 0) and (later.seconds is None or later.seconds >= 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a training may run. `watch` says how it is watched if its upper bound does not fit; None if that fits."""

    plan: Plan
    watch: Watch | None = None

    def value(self, problem: Problem) -> float:
        """The expected value in the goal's unit; without a fallback, the value if it fits for each unit of chance."""
        if self.watch is None:
            return self.plan.value(problem)
        return float(self._values(problem, self.watch, np.asarray(self.watch.chance)))

    def values_after(
        self, problem: Problem, remaining: Remaining, relative_error: float, seconds: Floats, usd: Floats
    ) -> Floats:
        """(N,) the expected value of a watched training after so much time and money; inf where too little remains.

        relative_error  of its trial
        """
        plan, watch = self.plan, self.watch
        if watch is None:
            return np.full(len(seconds), plan.value(problem))
        left = np.full(len(seconds), np.inf)
        if remaining.seconds is not None:
            left = remaining.seconds - seconds
        if remaining.usd is not None:
            dollars = (remaining.usd - plan.moved_usd).dollars - usd
            left = np.minimum(left, dollars / problem.price(plan.config).dollars * HOUR)
        chance = np.minimum(_chance(problem, plan, left - seconds_to_stop(left), relative_error), watch.chance)
        stays = chance >= LEAST_CHANCE
        return np.where(stays, self._values(problem, watch, np.maximum(chance, LEAST_CHANCE)), np.inf)

    def _values(self, problem: Problem, watch: Watch, chance: Floats) -> Floats:
        there = self.plan.value(problem)
        if watch.fallback is None:
            return there / chance
        if watch.renews:  # it moves anywhere on the way
            return chance * there + (1 - chance) * (there + watch.fallback.value(problem)) / 2
        lost = problem.goal.value(watch.seconds, watch.usd.dollars)
        return chance * there + (1 - chance) * (lost + watch.fallback.value(problem))


def may_be_watched(problem: Problem, remaining: Remaining) -> bool:
    """Whether a training may start that is not certain to fit: if mlcd watches it, under a limit, with exact work."""
    exact = problem.work_known and problem.work_error == 0 and problem.target is None and problem.batching is None
    wanted = problem.watched or problem.interruptions is not None
    return exact and wanted and remaining.guarded and remaining.is_limited and problem.verify_seconds is None


def look_seconds(problem: Problem, config: Config, trial: Measurement | None) -> float:
    """How long a training on `config` runs until its own speed is known: it starts, runs for as long as a trial, saves.

    It starts as its trial did; where the training moves, it takes at least `Problem.restart_seconds`. A trial that was
    extended shows that the job reports its progress rarely.
    """
    startup, measured = (0.0, 0.0) if trial is None else (trial.startup_seconds, trial.seconds - trial.startup_seconds)
    training = max(problem.trial.planned_seconds(config.nodes), measured, LEAST_TRAINING_SECONDS)
    return max(startup, problem.restart_seconds) + training + problem.stop_seconds


def watched(
    problem: Problem,
    history: History,
    remaining: Remaining,
    left: Collection[Config] = (),
    *,
    has_begun: bool = False,
) -> Iterator[Place]:
    """The measured deployments that are expected to fit what remains but not certain to, each with its watch.

    left       deployments that the training has left: they are not watched again
    has_begun  whether some of the training is done
    """
    if not may_be_watched(problem, remaining):
        return
    known = plans(problem, history)
    nothing_fits = not any(remaining.fits(plan) for plan in known)
    by_config = {trial.config: trial for trial in history.measured}
    restarting = history.with_startup(problem.restart_seconds)
    for plan in known:
        if remaining.fits(plan) or plan.config in left:
            continue
        if plan.config.is_spot:
            place = _on_spot(problem, plan, by_config[plan.config], plans(problem, restarting), remaining)
            if place is not None:
                yield place
            if place is not None or not nothing_fits or problem.checkpoint_seconds(plan.config) is None:
                continue
        if not (problem.watched or (plan.config.is_spot and has_begun)):
            continue
        trial = by_config[plan.config]
        chance = chance_to_fit(problem, plan, remaining, trial.relative_error)
        if plan.config.is_spot:
            chance = min(chance, _chance_on_spot(problem, plan, trial, remaining))
        if chance < LEAST_CHANCE:
            continue
        seconds = look_seconds(problem, plan.config, trial)
        usd = problem.price(plan.config).for_seconds(seconds) + plan.moved_usd
        others = History(tuple(t for t in restarting if t.config != plan.config))
        fallback = best_fitting(problem, others, less(remaining, seconds, usd))
        if fallback is not None or nothing_fits:
            watch = Watch(seconds=seconds, usd=usd, chance=chance, fallback=fallback)
            if watch.is_covered(remaining):
                yield Place(plan=plan, watch=watch)


def _on_spot(
    problem: Problem, plan: Plan, trial: Measurement, known: Iterable[Plan], remaining: Remaining
) -> Place | None:
    """The training on spot nodes, watched; None where no on-demand deployment is certain to fit for long enough."""
    spot, price = problem.interruptions, problem.price(plan.config)
    seconds, fallback = seconds_on_spot(problem, plan.config, known, remaining)
    interval = problem.checkpoint_seconds(plan.config)
    if spot is None or fallback is None or interval is None:
        return None
    restart = max(problem.restart_seconds, trial.startup_seconds)
    if seconds < restart + interval + problem.stop_seconds:
        return None
    chance = _chance_on_spot(problem, plan, trial, remaining, seconds)
    if chance < LEAST_CHANCE:
        return None
    usd = price.for_seconds(seconds) + plan.moved_usd
    watch = Watch(seconds=seconds, usd=usd, chance=chance, fallback=fallback, renews=True)
    return Place(plan=plan, watch=watch) if watch.is_covered(remaining) else None


def _chance_on_spot(
    problem: Problem, plan: Plan, trial: Measurement, remaining: Remaining, most_seconds: float = math.inf
) -> float:
    """The probability that a training on spot nodes is not interrupted more often than what remains has room for."""
    spot = problem.interruptions
    if spot is None:
        return 1.0
    room = seconds_to_use(problem, plan.config, less(remaining, 0.0, plan.moved_usd)) - plan.seconds
    loss = spot.loss_seconds(plan.config, max(problem.restart_seconds, trial.startup_seconds), plan.seconds)
    if remaining.usd is not None:
        loss += plan.moved_usd.dollars / problem.price(plan.config).dollars * HOUR  # new nodes need the data again
    room = min(room, most_seconds)
    losses = math.floor(room / loss) if room >= 0 else -1
    return spot.chance_of_at_most(plan.config, plan.seconds, losses)


def seconds_on_spot(
    problem: Problem, config: Config, known: Iterable[Plan], remaining: Remaining, *, has_data: bool = False
) -> tuple[float, Plan | None]:
    """How long a training may use spot nodes so that all of the work still fits on demand then, and where.

    known     plans for what would be left of the work then; those that are not on demand do not count
    has_data  whether bringing the data to the spot nodes is paid for
    """
    longest, fallback = 0.0, None
    price = problem.price(config).dollars
    moved = ZERO if has_data else problem.move_to(config).usd
    for plan in known:
        if plan.config.is_spot or not plan.is_bookable:
            continue
        seconds = math.inf if remaining.seconds is None else remaining.seconds - plan.worst_seconds
        if remaining.usd is not None:
            seconds = min(seconds, (remaining.usd - plan.worst_usd - moved).dollars / price * HOUR)
        seconds = math.floor(seconds * 1000 - 1) / 1000  # money is charged in whole micro-dollars
        if seconds > longest:
            longest, fallback = seconds, plan
    return longest, fallback


def best_watched(
    problem: Problem,
    history: History,
    remaining: Remaining,
    certain: Plan | None,
    left: Collection[Config] = (),
    *,
    has_begun: bool = False,
) -> Place | None:
    """The best watched training, if it is expected to be better than `certain`, which fits; None if none is."""
    found = watched(problem, history, remaining, left, has_begun=has_begun)
    best = min(found, key=lambda place: place.value(problem), default=None)
    if best is None or (certain is not None and best.value(problem) >= certain.value(problem)):
        return None
    return best


def chance_to_fit(problem: Problem, plan: Plan, remaining: Remaining, relative_error: float) -> float:
    """The probability that the plan fits: how far the tighter limit is beyond it, over the error of its speed.

    With `Problem.slowdown`, that it fits although it is slower by that share.
    """
    room = seconds_to_use(problem, plan.config, less(remaining, 0.0, plan.moved_usd))
    return float(_chance(problem, plan, np.asarray(room), relative_error))


def _chance(problem: Problem, plan: Plan, seconds: Floats, relative_error: float) -> Floats:
    """The probability that the plan takes no longer than so many seconds."""
    room = np.maximum(seconds / max(plan.seconds, 1e-9), _NO_ROOM)
    return np.asarray(ndtr((np.log(room) - math.log1p(problem.slowdown)) / max(relative_error, 1e-6)))


def seconds_to_use(problem: Problem, config: Config, remaining: Remaining, passed_seconds: float = 0.0) -> float:
    """How long a training on `config` may still train within what remains: then it is saved, and its nodes released.

    passed_seconds  how long it has run; the time kept at the end is a share of all of it (`stop_at`)
    """
    left = math.inf if remaining.seconds is None else remaining.seconds
    if remaining.usd is not None:
        left = min(left, remaining.usd.dollars / problem.price(config).dollars * HOUR)
    return float(left - seconds_to_stop(left + passed_seconds))


def less(remaining: Remaining, seconds: float, usd: Usd) -> Remaining:
    """What remains after so much time and money."""
    return replace(
        remaining,
        usd=None if remaining.usd is None else remaining.usd - usd,
        seconds=None if remaining.seconds is None else remaining.seconds - seconds,
    )
