"""The best fleets for the way that is left, and how long to keep the first of them: an epoch, or a part of one.

The way left is cut into equal stretches of progress. A fleet that gains g effective epochs an epoch needs 1/g of them
for one: so minimise sum T(a)/g(a, s) subject to sum usd(a)/g(a, s) <= budget, which a single Lagrange multiplier solves
by enumeration. Where the cheapest is wanted, money and time change places. That is smooth in what is left, so that a
wrong guess of it costs little.

Parts of epochs serve twice. The first ones are small and grow: a workload that is not known yet is met with a
hundredth of an epoch. The last one is as long as the way left, so that no training goes far past its target.
"""

import math

import numpy as np
from numpy.typing import NDArray

from mlcd.functions import FunctionProblem
from mlcd.goal import Objective
from mlcd.models.epochs import EpochModel
from mlcd.schedulers.planning import Fleets, frugal, least_part
from mlcd.trial.epoch import LEAST_SHARE, EpochLeft, Fleet

Floats = NDArray[np.float64]

STRETCHES = 12
ASIDE, ASIDE_SHARE = 0.15, 0.2
"""Epochs whose price is set aside, and the most of the way left that they may be: the ledger's reserve for the last
part, and a part more where that one falls short."""
BOLD = 0.3
"""Deviations by which the way left is taken shorter than its mean where the budget might not do: money that is kept
back too long buys nothing."""
SHORTEST = 0.3
"""And never less than this of its mean."""
UNKNOWN = 0.05
"""The way left is known when its deviation is less than this of it: from then on whole epochs are run."""
FEWER = 4.0
"""The very first part has so many times fewer functions than planned: that many may cost time that nobody knows of."""
SECOND, GROWTH = 0.05, 2.0
"""The least part after it; each is so many times as large as all before it."""
BUSY = 4.0
"""A part is not cut smaller than where its functions work so many times as long as the cloud takes to start them."""
SURE = 1.0
"""Deviations that the last part goes beyond the target."""
WORTH = 0.25
"""A fleet is planned with where so much of an epoch of it is payable, or the way left if that is less."""


def next_part(
    problem: FunctionProblem, model: EpochModel, left: EpochLeft, fleets: Fleets, *, passes: float
) -> Fleet | None:
    """The first fleet of the best plan, and for how much of an epoch; None where nothing is payable.

    Where the model sees no plan that fits but might be wrong, a frugal fleet: the fastest whose price is within 15% of
    the cheapest. passes: epochs done, parts as what they are.
    """
    need = (model.epochs_left + SURE * _doubt(model)) / model.gain(fleets.functions, np.array(model.stage))
    usable = fleets.most_share >= np.clip(need, LEAST_SHARE, WORTH)
    plan = _plan(problem, model, left, fleets, usable)
    first = int(plan[0]) if plan is not None else frugal(fleets, fleets.most_share >= LEAST_SHARE)
    if first is None:
        return None
    share = 1.0
    if model.epochs_left_deviation > UNKNOWN * model.epochs_left:
        first = first if passes else _with_fewer(fleets, usable, first)
        share = max(SECOND, GROWTH * passes) if passes else LEAST_SHARE
    share = max(min(share, float(need[first])), _least(problem, model, fleets, first))
    return fleets.fleet(first, min(share, float(fleets.most_share[first]), left.epochs))


def _doubt(model: EpochModel) -> float:
    """Deviation of what the last part brings from what is left, in effective epochs."""
    return math.hypot(0.012, min(model.epochs_left_deviation, 0.05 * model.epochs_left))


def _with_fewer(fleets: Fleets, usable: NDArray[np.bool_], first: int) -> int:
    """The usable fleet of the same memory with about `FEWER` times fewer functions."""
    alike = usable & (fleets.memory_mb == fleets.memory_mb[first])
    distance = np.abs(np.log(fleets.functions * FEWER / fleets.functions[first]))
    return int(np.where(alike, distance, np.inf).argmin()) if alike.any() else first


def _least(problem: FunctionProblem, model: EpochModel, fleets: Fleets, index: int) -> float:
    """The smallest part that makes starting the functions worth while: in time, since nobody pays for their start."""
    if problem.goal.minimize is not Objective.TIME:
        return least_part(problem)
    overhead = float(model.overhead(fleets.functions[index : index + 1])[0])
    worth = BUSY * overhead / max(float(fleets.seconds[index]) - overhead, 1e-9)
    return max(least_part(problem), worth)


def _plan(
    problem: FunctionProblem, model: EpochModel, left: EpochLeft, fleets: Fleets, usable: NDArray[np.bool_]
) -> NDArray[np.intp] | None:
    """(STRETCHES,) indices of the fleets; None where none fits in what is left."""
    if not usable.any():
        return None
    value, other, limit = fleets.sides(problem, left)
    way = _way(model, float((limit / other * model.usual_gain(fleets.functions))[usable].max()))
    stage = model.stage + (1 - model.stage) * (np.arange(STRETCHES) + 0.5) / STRETCHES
    epochs = way / STRETCHES / model.gain(fleets.functions[None, :], stage[:, None])
    worth = np.where(usable[None, :], value[None, :] * epochs, np.inf)
    return _under_limit(worth, other[None, :] * epochs, limit * way / (way + _aside(way)))


def _aside(way: float) -> float:
    return min(ASIDE, ASIDE_SHARE * way)


def _way(model: EpochModel, payable: float) -> float:
    """Effective epochs to plan for, given that the training can be paid for: else nothing that is chosen now matters.

    The way left is taken as normal, cut off at `payable`, where even the cheapest fleet would use up what is left. Its
    mean is then mu - sigma phi(b)/Phi(b), b = (payable - mu)/sigma.
    """
    mean, deviation = model.epochs_left, model.epochs_left_deviation
    if deviation <= 0:
        return mean
    cut = (payable - _aside(payable) - mean) / deviation
    if cut <= 4:
        cut = max(cut, -3.0)
        density = math.exp(-0.5 * cut**2) / math.sqrt(2 * math.pi)
        mean -= deviation * density / (0.5 * math.erfc(-cut / math.sqrt(2)))
        mean -= BOLD * deviation
    return max(mean, SHORTEST * model.epochs_left)


def _under_limit(value: Floats, other: Floats, limit: float) -> NDArray[np.intp] | None:
    """(E,) argmin of value + multiplier x other, a row an epoch, with the smallest multiplier that keeps the limit."""
    rows = np.arange(len(value))

    def pick(multiplier: float) -> tuple[NDArray[np.intp], float]:
        chosen = (value + multiplier * other).argmin(axis=1)
        return chosen, float(other[rows, chosen].sum())

    chosen, total = pick(0.0)
    if total <= limit:
        return chosen
    finite = np.isfinite(value)
    low, high = 0.0, float(value[finite].mean() / other[finite].mean())
    for _ in range(30):
        chosen, total = pick(high)
        if total <= limit:
            break
        low, high = high, high * 4
    else:
        return None
    for _ in range(20):
        middle = (low + high) / 2
        tried, total = pick(middle)
        low, high, chosen = (low, middle, tried) if total <= limit else (middle, high, chosen)
    return chosen
