"""The fleets that may come next, with what the model predicts of each: what every planner chooses from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlcd.functions import FunctionProblem
from mlcd.goal import Objective
from mlcd.models.epochs import EpochModel
from mlcd.trial.epoch import LEAST_SHARE, EpochLeft, Fleet

Floats = NDArray[np.float64]

COUNTS, SIZES = 120, 4
"""Numbers of functions and memory sizes that are looked at: a geometric choice of those allowed."""
TIME_MARGIN = 1.15
"""An epoch is planned only where it may take this much longer than predicted before its leave ends."""
PART_MARGIN = 0.03
"""And a part of one where it may take this much of an epoch longer besides: a straggler's last round is not shorter."""
STEPS = 8
"""Mini-batches that a part of an epoch has at least."""
LAST_PRICE = TIME_MARGIN * 1.04
"""What the last epoch counts more than its price: its worst case must fit in what is left then."""


@dataclass(frozen=True, kw_only=True)
class Fleets:
    """(A,) candidate fleets with what one epoch of each is predicted to take and to cost.

    most_share  the largest part of an epoch that the ledger's leave outlasts, with its margin; 0 where there is none
    """

    functions: Floats
    memory_mb: Floats
    seconds: Floats
    usd: Floats
    most_share: Floats

    @property
    def payable(self) -> NDArray[np.bool_]:
        """(A,) whether a whole epoch is."""
        return self.most_share >= 1

    def fleet(self, index: int, share: float = 1.0) -> Fleet:
        """As a value."""
        return Fleet(int(self.functions[index]), int(self.memory_mb[index]), share)

    def sides(self, problem: FunctionProblem, left: EpochLeft) -> tuple[Floats, Floats, float]:
        """(what is minimised, what is limited, its limit): seconds, dollars and the budget, or the other way round."""
        usd = left.usd.dollars if left.usd is not None else float("inf")
        seconds = left.seconds if left.seconds is not None else float("inf")
        if problem.goal.minimize is Objective.TIME:
            return self.seconds, self.usd, usd
        return self.usd, self.seconds, seconds


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
    """The fleets looked at; none with less memory than `smallest_mb` is payable."""
    rows, columns = _choice(problem.functions, problem.memory_mb)
    functions, memory = problem.functions_array[rows, 0], problem.memory_array[0, columns]
    seconds, overhead = model.seconds(functions, memory), model.overhead(functions)
    usd = functions * (problem.usd_per_second[0, columns] * seconds + problem.usd_per_function)
    most = most_share(left.cap_seconds[rows, columns], seconds, overhead)
    most = np.where(memory >= smallest_mb, most, 0.0)
    for failure in left.failed:  # what failed is not tried again, nor anything smaller
        smaller = (functions <= failure.fleet.functions) & (memory <= failure.fleet.memory_mb)
        most = np.where(smaller, 0.0, most)
    return Fleets(functions=functions, memory_mb=memory, seconds=seconds, usd=usd, most_share=most)


def least_part(problem: FunctionProblem) -> float:
    """The smallest share of an epoch that is worth a barrier: enough mini-batches that what is measured tells."""
    return min(max(LEAST_SHARE, STEPS * problem.batch / problem.samples), 1.0)


def most_share(cap_seconds: Floats, seconds: Floats, overhead: Floats) -> Floats:
    """(A,) the part of an epoch of `seconds`, `overhead` of which any part has, that its leave outlasts."""
    busy = np.maximum(seconds - overhead, 1e-9)
    share = (cap_seconds / TIME_MARGIN - overhead) / busy
    result: Floats = np.clip(np.where(share < 1, share - PART_MARGIN, share), 0.0, 1.0)
    return result


def cheapest_usd(
    problem: FunctionProblem,
    model: EpochModel,
    fleets: Fleets,
    *,
    smallest_mb: float = 0.0,
    least_share: float = 1.0,
) -> float:
    """The least that the epochs left are predicted to cost with one fleet, whatever is left to pay for them.

    least_share  to which the last epoch may be cut
    """
    usable = (fleets.memory_mb >= smallest_mb) & (fleets.seconds * TIME_MARGIN <= problem.longest_epoch_seconds)
    if not usable.any():
        return float("inf")
    epochs = np.maximum(model.epochs_left / model.usual_gain(fleets.functions), LEAST_SHARE)
    if least_share == 1:
        epochs = np.maximum(np.ceil(epochs - 0.05), 1.0)
    last = np.clip(epochs, least_share, 1.0)
    return float((fleets.usd * (epochs + last * (LAST_PRICE - 1)))[usable].min())


def frugal(fleets: Fleets, usable: NDArray[np.bool_], *, within: float = 1.15) -> int | None:
    """The fastest usable fleet whose epoch costs at most `within` times the cheapest usable one's."""
    if not usable.any():
        return None
    near = usable & (fleets.usd <= within * fleets.usd[usable].min())
    return int(np.where(near, fleets.seconds, np.inf).argmin())
