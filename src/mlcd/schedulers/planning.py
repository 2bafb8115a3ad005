"""The best fleets for the epochs that are left, by what a model predicts: enumeration under two Lagrange multipliers.

For E epochs, minimise sum T(n_t, m_t) subject to sum usd(n_t, m_t) <= budget and sum gain(n_t, s_t) >= effective epochs
left. With multipliers L of money and M of progress each epoch's fleet is the argmin of T + L usd - M gain over all
fleets, and both multipliers are found by bisection; E runs from the fewest epochs that can do. Where the cheapest is
wanted, money and time change places.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlcd.functions import FunctionProblem
from mlcd.goal import Objective
from mlcd.models.epochs import EpochModel
from mlcd.trial.epoch import EpochLeft, Fleet

Floats = NDArray[np.float64]

COUNTS, SIZES = 120, 4
"""Numbers of functions and memory sizes that are looked at: a geometric choice of those allowed."""
TIME_MARGIN = 1.15
"""An epoch is planned only where it may take this much longer than predicted before its leave ends."""


WHOLE = 0.35
"""While the epochs left are less certain than this, they are planned as if a part of an epoch could be run."""
STRETCHES = 12
ASIDE = 0.4
"""Epochs whose price is then set aside: the ledger's reserve for the last one, and half an epoch for its remainder."""
CUT = 0.7
"""How far the way left is shortened towards its mean over the lengths that can be paid for at all."""
SURE, LIKELY, BOLD = 2.6, 1.3, 2.0
"""Deviations that a plan covers: almost surely enough, or likely and then it leaves the price of one more cheap epoch;
or a bold one, where neither would end in good time: it has nothing left if it misses, one time in 44."""
PENALTY = 4 / 44
"""What being bold counts: a training that ends without its target is taken for four."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Fleets for the epochs left, the first one first, with what they are predicted to take and to cost."""

    fleets: tuple[Fleet, ...]
    seconds: float
    usd: float


@dataclass(frozen=True, kw_only=True)
class Fleets:
    """(A,) candidate fleets with what one epoch of each is predicted to take and to cost."""

    functions: Floats
    memory_mb: Floats
    seconds: Floats
    usd: Floats
    payable: NDArray[np.bool_]

    def fleet(self, index: int) -> Fleet:
        """As a value."""
        return Fleet(int(self.functions[index]), int(self.memory_mb[index]))


def spread_over(values: Sequence[int], count: int) -> tuple[int, ...]:
    """At most `count` indices into rising `values`, both ends among them, spread evenly over their logarithms."""
    logs = np.log(np.array(values, dtype=np.float64))
    wanted = np.linspace(logs[0], logs[-1], count)
    return tuple(sorted({int(np.abs(logs - w).argmin()) for w in wanted}))


@lru_cache(maxsize=64)
def _choice(functions: tuple[int, ...], memory_mb: tuple[int, ...]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    rows = np.array(spread_over(functions, COUNTS))
    columns = np.array(spread_over(memory_mb, SIZES))
    grid = np.meshgrid(rows, columns, indexing="ij")
    return grid[0].ravel(), grid[1].ravel()


def candidates(problem: FunctionProblem, model: EpochModel, left: EpochLeft, *, smallest_mb: float = 0.0) -> Fleets:
    """The fleets looked at; `payable` where the ledger's leave outlasts the prediction with its margin."""
    rows, columns = _choice(problem.functions, problem.memory_mb)
    functions, memory = problem.functions_array[rows, 0], problem.memory_array[0, columns]
    seconds = model.seconds(functions, memory)
    usd = functions * (problem.usd_per_second[0, columns] * seconds + problem.usd_per_function)
    payable = left.cap_seconds[rows, columns] >= seconds * TIME_MARGIN
    payable &= memory >= smallest_mb
    for failure in left.failed:  # what failed is not tried again, nor anything smaller
        payable &= ~((functions <= failure.fleet.functions) & (memory <= failure.fleet.memory_mb))
    return Fleets(functions=functions, memory_mb=memory, seconds=seconds, usd=usd, payable=payable)


def best_plan(
    problem: FunctionProblem, model: EpochModel, left: EpochLeft, fleets: Fleets, *, fixed: bool = False
) -> Plan | None:
    """The plan with the best predicted value, or None when none fits in what is left. `fixed`: one fleet throughout."""
    if not fleets.payable.any():
        return None
    is_time = problem.goal.minimize is Objective.TIME
    value, other = (fleets.seconds, fleets.usd) if is_time else (fleets.usd, fleets.seconds)
    limit = _limit(left.usd.dollars if left.usd is not None else None) if is_time else _limit(left.seconds)
    if not fixed and model.epochs_left_deviation > WHOLE and model.epochs_left > 2:
        return _stretches(_payable_way(model, fleets, other, limit), fleets, value=value, other=other, limit=limit)
    best: tuple[float, NDArray[np.intp]] | None = None
    worse = 0
    spare = float(other[fleets.payable].min()) * TIME_MARGIN * 1.04
    for epochs in range(1, left.epochs + 1):
        found = False
        for sigmas, kept, penalty in ((SURE, 0.0, 0.0), (LIKELY, spare, 0.0), (BOLD, 0.0, PENALTY)):
            aim = _Aim(need=model.epochs_left + sigmas * _doubt(model, epochs), limit=limit - kept)
            chosen = _over_stages(model, fleets, epochs, aim, value=value, other=other, fixed=fixed)
            if chosen is None:
                continue
            planned = float(value[chosen].sum())
            whole = planned * (1 + model.done / max(model.epochs_left, 0.5))
            counted = planned + penalty * whole
            if best is None or counted < best[0]:
                best, found = (counted, chosen), True
        worse = 0 if found or best is None else worse + 1
        if worse >= 2:
            break
    if best is None:
        return None
    rows = best[1]
    return Plan(
        fleets=tuple(fleets.fleet(row) for row in rows),
        seconds=float(fleets.seconds[rows].sum()),
        usd=float(fleets.usd[rows].sum()),
    )


def cheapest_usd(problem: FunctionProblem, model: EpochModel, fleets: Fleets, *, smallest_mb: float = 0.0) -> float:
    """The least that the epochs left are predicted to cost with one fleet, whatever is left to pay for them."""
    usable = (fleets.memory_mb >= smallest_mb) & (fleets.seconds * TIME_MARGIN <= problem.longest_epoch_seconds)
    if not usable.any():
        return float("inf")
    stage = model.stage + (1 - model.stage) * 0.5
    gains = model.gain(fleets.functions, np.array(stage))
    epochs = np.maximum(np.ceil(model.epochs_left / gains - 0.05), 1.0)
    return float((fleets.usd * (epochs - 1 + _weights(1)[0]))[usable].min())


def frugal(fleets: Fleets, *, within: float = 1.15) -> Fleet | None:
    """The fastest payable fleet whose epoch costs at most `within` times the cheapest payable one's."""
    if not fleets.payable.any():
        return None
    near = fleets.payable & (fleets.usd <= within * fleets.usd[fleets.payable].min())
    return fleets.fleet(int(np.where(near, fleets.seconds, np.inf).argmin()))


def _payable_way(model: EpochModel, fleets: Fleets, other: Floats, limit: float) -> EpochModel:
    """The model given that the training can be paid for: where it cannot, nothing that is chosen now matters.

    The way left is taken as normal, cut off where even the cheapest fleet would use up what is left. Its mean is then
    mu - sigma phi(b)/Phi(b), b = (most - mu)/sigma; CUT of that step is made: a budget may be too small after all.
    """
    stage = model.stage + (1 - model.stage) * 0.5
    gains = model.gain(fleets.functions, np.array(stage))
    most = float((limit / other * gains)[fleets.payable].max()) - ASIDE
    mean, deviation = model.epochs_left, model.epochs_left_deviation
    cut = (most - mean) / deviation
    if cut > 4:
        return model
    cut = max(cut, -3.0)
    density = math.exp(-0.5 * cut**2) / math.sqrt(2 * math.pi)
    below = 0.5 * math.erfc(-cut / math.sqrt(2))
    return replace(model, epochs_left=max(mean - CUT * deviation * density / below, 1.0))


def _stretches(model: EpochModel, fleets: Fleets, *, value: Floats, other: Floats, limit: float) -> Plan | None:
    """The way left in equal stretches of progress: min sum T/gain under sum usd/gain, one multiplier.

    A fleet that gains g a epoch needs 1/g as many. Smooth in what is left, so that a wrong guess of it costs little;
    for the same reason the ledger's reserve for the last epoch and half an epoch for its remainder are set aside.
    """
    stage = model.stage + (1 - model.stage) * (np.arange(STRETCHES) + 0.5) / STRETCHES
    epochs = model.epochs_left / STRETCHES / model.gain(fleets.functions[None, :], stage[:, None])
    times, moneys = value[None, :] * epochs, other[None, :] * epochs
    times = np.where(fleets.payable[None, :], times, np.inf)
    rows = np.arange(STRETCHES)
    share = model.epochs_left / (model.epochs_left + ASIDE)

    def pick(multiplier: float) -> tuple[NDArray[np.intp], float]:
        chosen = (times + multiplier * moneys).argmin(axis=1)
        return chosen, float(moneys[rows, chosen].sum())

    chosen, total = pick(0.0)
    if total > limit * share:
        low, high = 0.0, float(value.mean() / other.mean())
        for _ in range(30):
            chosen, total = pick(high)
            if total <= limit * share:
                break
            low, high = high, high * 4
        else:
            return None
        for _ in range(20):
            middle = (low + high) / 2
            tried, total = pick(middle)
            low, high, chosen = (low, middle, tried) if total <= limit * share else (middle, high, chosen)
    whole = epochs[rows, chosen]
    return Plan(
        fleets=tuple(fleets.fleet(row) for row in chosen),
        seconds=float((fleets.seconds[chosen] * whole).sum()),
        usd=float((fleets.usd[chosen] * whole).sum()),
    )


def _limit(value: float | None) -> float:
    return float("inf") if value is None else value


def _doubt(model: EpochModel, epochs: int) -> float:
    """Deviation of what so many epochs bring from what is left, in effective epochs: chance, the fit, the model.

    The more epochs are to come, the more of it will be known, and made up for, before the last.
    """
    once = math.hypot(0.012, min(model.epochs_left_deviation, 0.3), 0.02)
    return once / math.pow(epochs, 1.5)


def _weights(epochs: int) -> Floats:
    """The last epoch's price counts more: its worst case must fit in what is left then."""
    weights = np.ones(epochs)
    weights[-1] = TIME_MARGIN * 1.04
    return weights


@dataclass(frozen=True, slots=True)
class _Aim:
    """Effective epochs that are needed, and what may be used of the other side: money, or time."""

    need: float
    limit: float


def _over_stages(
    model: EpochModel, fleets: Fleets, epochs: int, aim: _Aim, *, value: Floats, other: Floats, fixed: bool
) -> NDArray[np.intp] | None:
    """(E,) indices. A fleet's gain depends on the stage, and the stage on the fleets before: solved in three rounds."""
    middle = fleets.functions[fleets.payable & (other * epochs <= aim.limit)]
    start = float(np.median(middle)) if len(middle) else float(fleets.functions.min())
    stage = _stages(model, np.full(epochs, start))
    choose = _one_fleet if fixed else _fleets
    for _ in range(3):
        gains = model.gain(fleets.functions[None, :], stage[:, None])
        if gains[:, fleets.payable].max(axis=1).sum() < aim.need:
            return None
        chosen = choose(value, other, gains, fleets.payable, aim)
        if chosen is None:
            return None
        stage = _stages(model, fleets.functions[chosen])
    reached = float(model.gain(fleets.functions[chosen], stage).sum())
    return chosen if reached >= aim.need - 0.03 else None


def _stages(model: EpochModel, functions: Floats) -> Floats:
    """(E,) the stage at the start of each epoch, when these numbers of functions run one after the other."""
    whole, done, found = model.done + model.epochs_left, model.done, []
    for n in functions:
        found.append(min(1.0, done / whole))
        done += float(model.gain(np.array(n), np.array(found[-1])))
    return np.array(found)


def _one_fleet(
    value: Floats, other: Floats, gains: Floats, payable: NDArray[np.bool_], aim: _Aim
) -> NDArray[np.intp] | None:
    epochs = len(gains)
    fits = payable & (gains.sum(axis=0) >= aim.need) & (other * _weights(epochs).sum() <= aim.limit)
    if not fits.any():
        return None
    return np.full(epochs, int(np.where(fits, value, np.inf).argmin()))


def _fleets(
    value: Floats, other: Floats, gains: Floats, payable: NDArray[np.bool_], aim: _Aim
) -> NDArray[np.intp] | None:
    """(E,) indices: the smallest multiplier of progress that suffices, and for it that of the other limit."""
    weights = _weights(len(gains))
    steps = np.arange(len(gains))
    base = np.where(payable, value, np.inf)

    def pick(progress_price: float) -> NDArray[np.intp] | None:
        return _under_limit(base[None, :] - progress_price * gains, other, weights, aim.limit)

    def enough(chosen: NDArray[np.intp] | None) -> bool:
        return chosen is not None and float(gains[steps, chosen].sum()) >= aim.need

    chosen = pick(0.0)
    if chosen is None or enough(chosen):
        return chosen
    scale = float(value[payable].mean())
    low, high = 0.0, scale
    for _ in range(12):
        if enough(pick(high)):
            break
        low, high = high, high * 4
    else:
        return None
    for _ in range(10):
        middle = (low + high) / 2
        if enough(pick(middle)):
            high = middle
        else:
            low = middle
    return pick(high)


def _under_limit(score: Floats, other: Floats, weights: Floats, limit: float) -> NDArray[np.intp] | None:
    """(E,) argmin of score + multiplier x other with the smallest multiplier that keeps the limit."""

    def pick(multiplier: float) -> tuple[NDArray[np.intp], float]:
        chosen = (score + multiplier * (weights[:, None] * other[None, :])).argmin(axis=1)
        return chosen, float((weights * other[chosen]).sum())

    chosen, total = pick(0.0)
    if total <= limit:
        return chosen
    finite = score[np.isfinite(score)]
    low, high = 0.0, float(np.abs(finite).mean() / max(float(other.mean()), 1e-12)) + 1e-9
    for _ in range(30):
        found, total = pick(high)
        if total <= limit:
            break
        low, high = high, high * 4
    else:
        return None
    for _ in range(16):
        middle = (low + high) / 2
        tried, total = pick(middle)
        if total <= limit:
            high, found = middle, tried
        else:
            low = middle
    return found
