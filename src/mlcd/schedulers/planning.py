"""The candidate fleets for the next epoch, with the model's prediction for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlcd.functions import FunctionProblem
from mlcd.goal import Objective
from mlcd.models.epochs import EpochModel
from mlcd.trial.epoch import LEAST_SHARE, Fleet, RemainingEpochs

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningSettings:
    """Shared by all schedulers that plan with the epoch model. Sources: docs/siren.md, "What was chosen on what"."""

    function_counts: int = 90
    """Function counts considered, spread evenly over their logarithms. Chosen for speed; unmeasured."""

    memory_sizes: int = 10
    """Memory sizes considered, spread likewise from the largest down to `memory_range` times less. Chosen for speed;
    unmeasured."""

    memory_range: float = 4.0
    """The largest memory size over the smallest considered. Unmeasured."""

    time_margin: float = 1.15
    """An epoch is planned only if its authorisation lasts this many times its predicted time. A safety
    margin; chosen on tune-0 to tune-520."""

    part_margin: float = 0.03
    """A part of an epoch is planned only if its authorisation lasts this share of an epoch longer still: a straggler's
    last round is not shorter. A safety margin; chosen on tune-0 to tune-520."""

    least_steps: int = 8
    """Fewest mini-batches in a part of an epoch, so that its times are informative. Unmeasured."""

    last_price_factor: float = 1.04
    """Factor on the price of the last epoch, on top of `time_margin`: its worst case must fit in what remains.
    A safety margin; unmeasured."""

    frugal_factor: float = 1.15
    """If no plan fits: the fastest fleet whose epoch costs at most this many times the cheapest. Unmeasured."""

    budget_factor: float = 1.4
    """Reported sufficient budget over the cost of the cheapest training: for random variation, and because fleets are
    chosen to be fast and money is kept back. A safety margin; unmeasured."""

    known_epochs_share: float = 0.05
    """A prior whose epochs are this certain comes from earlier runs: it may refuse a budget before the first epoch. The
    general prior has 0.45, one from earlier runs 0.03."""

    unknown_sigmas: float = 5.0
    """Before anything was measured, a limit is refused only if a training this many standard deviations quicker than
    expected would break it. Logistic regression on this machine took a 23rd of the prior's time, 3.8 of them
    (examples/serverless/ctr.yaml)."""

    measured_sigmas: float = 3.0
    """The same after the first part, which shows the time of an epoch, before the loss shows how many it takes."""

    @property
    def last_price(self) -> float:
        """The planned price of the last epoch over its predicted price."""
        return self.time_margin * self.last_price_factor


PLANNING = PlanningSettings()


@dataclass(frozen=True, kw_only=True)
class Fleets:
    """(A,) candidate fleets with what one epoch of each is predicted to take and to cost.

    most_share  the largest part of an epoch that the ledger would authorise with its margin; 0 if there is none
    """

    functions: Floats
    memory_mb: Floats
    seconds: Floats
    usd: Floats
    most_share: Floats

    @property
    def payable(self) -> NDArray[np.bool_]:
        """(A,) whether a whole epoch is payable."""
        return self.most_share >= 1

    def fleet(self, index: int, share: float = 1.0) -> Fleet:
        """The candidate `index`, for a share of an epoch."""
        return Fleet(int(self.functions[index]), int(self.memory_mb[index]), share)

    def sides(self, problem: FunctionProblem, remaining: RemainingEpochs) -> tuple[Floats, Floats, float]:
        """(what is minimised, what is limited, its limit): seconds, dollars and the budget, or the other way round."""
        usd = remaining.usd.dollars if remaining.usd is not None else float("inf")
        seconds = remaining.seconds if remaining.seconds is not None else float("inf")
        if problem.goal.minimize is Objective.TIME:
            return self.seconds, self.usd, usd
        return self.usd, self.seconds, seconds


def spread_over(values: Sequence[int], count: int) -> tuple[int, ...]:
    """At most `count` indices into rising `values`, both ends among them, spread evenly over their logarithms."""
    logs = np.log(np.array(values, dtype=np.float64))
    wanted = np.linspace(logs[0], logs[-1], count)
    return tuple(sorted({int(np.abs(logs - w).argmin()) for w in wanted}))


@lru_cache(maxsize=64)
def _choice(
    functions: tuple[int, ...], memory_mb: tuple[int, ...], counts: int, sizes: int, least_mb: float
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    rows = np.array(spread_over(functions, counts))
    first = sum(size < least_mb for size in memory_mb)
    columns = first + np.array(spread_over(memory_mb[first:], sizes))
    grid = np.meshgrid(rows, columns, indexing="ij")
    return grid[0].ravel(), grid[1].ravel()


def candidates(
    problem: FunctionProblem,
    model: EpochModel,
    remaining: RemainingEpochs,
    *,
    smallest_mb: float = 0.0,
    settings: PlanningSettings = PLANNING,
) -> Fleets:
    """The candidate fleets; none with less memory than `smallest_mb` is payable."""
    least_mb = problem.memory_mb[-1] / settings.memory_range
    rows, columns = _choice(
        problem.functions, problem.memory_mb, settings.function_counts, settings.memory_sizes, least_mb
    )
    functions, memory = problem.functions_array[rows, 0], problem.memory_array[0, columns]
    seconds, overhead = model.seconds(functions, memory), model.overhead(functions)
    usd = functions * (problem.usd_per_second[0, columns] * seconds + problem.usd_per_function)
    most = most_share(remaining.cap_seconds[rows, columns], seconds, overhead, settings)
    most = np.where(memory >= smallest_mb, most, 0.0)
    for failure in remaining.failed:  # a fleet that failed is not tried again, nor a smaller one
        smaller = (functions <= failure.fleet.functions) & (memory <= failure.fleet.memory_mb)
        most = np.where(smaller, 0.0, most)
    return Fleets(functions=functions, memory_mb=memory, seconds=seconds, usd=usd, most_share=most)


def least_part(problem: FunctionProblem, settings: PlanningSettings = PLANNING) -> float:
    """The smallest share of an epoch worth a barrier: enough mini-batches for informative measurements."""
    return min(max(LEAST_SHARE, settings.least_steps * problem.batch / problem.samples), 1.0)


def most_share(cap_seconds: Floats, seconds: Floats, overhead: Floats, settings: PlanningSettings = PLANNING) -> Floats:
    """(A,) the largest part of an epoch of `seconds` that fits in `cap_seconds`; every part takes `overhead`."""
    busy = np.maximum(seconds - overhead, 1e-9)
    share = (cap_seconds / settings.time_margin - overhead) / busy
    result: Floats = np.clip(np.where(share < 1, share - settings.part_margin, share), 0.0, 1.0)
    return result


def cheapest_usd(
    problem: FunctionProblem,
    model: EpochModel,
    fleets: Fleets,
    *,
    smallest_mb: float = 0.0,
    least_share: float = 1.0,
    settings: PlanningSettings = PLANNING,
) -> float:
    """The least predicted cost of the remaining epochs with one fleet, whatever the remaining budget.

    least_share  smallest share to which the last epoch may be cut
    """
    usable = (fleets.memory_mb >= smallest_mb) & (
        fleets.seconds * settings.time_margin <= problem.longest_epoch_seconds
    )
    if not usable.any():
        return float("inf")
    epochs = np.maximum(model.epochs_left / model.usual_gain(fleets.functions), LEAST_SHARE)
    if least_share == 1:
        epochs = np.maximum(np.ceil(epochs - 0.05), 1.0)
    last = np.clip(epochs, least_share, 1.0)
    return float((fleets.usd * (epochs + last * (settings.last_price - 1)))[usable].min())


def frugal(fleets: Fleets, usable: NDArray[np.bool_], settings: PlanningSettings = PLANNING) -> int | None:
    """The fastest usable fleet whose epoch costs at most `frugal_factor` times the cheapest usable one's."""
    if not usable.any():
        return None
    near = usable & (fleets.usd <= settings.frugal_factor * fleets.usd[usable].min())
    return int(np.where(near, fleets.seconds, np.inf).argmin())
