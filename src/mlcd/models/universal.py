"""Scavenger's no-search model: a job's step time from other jobs' coefficients, with no run of it.

Of the new job only the user's bounds are known, and with them what fits in one worker's memory: a step that fills it
takes the median of the other jobs. The fixed time of a step, the exchange, its growth and its overlap are medians too.
The spread over the other jobs is the uncertainty of the prediction. What a sample is worth at each batch is not carried
over: that follows from the new job's learning-rate rule, and from its noise once a run has measured it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from mlcd.errors import BadInput
from mlcd.models.parallel import Law, ParallelModel


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """Another job's step times, fitted with the overlap law. Raises BadInput for another law."""

    largest_local_batch: float
    parallel: ParallelModel

    def __post_init__(self) -> None:
        if self.parallel.law is not Law.OVERLAP:
            raise BadInput("a known job must be fitted with the overlap law")


def universal(known: Sequence[KnownJob], *, largest_local_batch: float) -> ParallelModel:
    """The new job's step times. Raises BadInput if no other job is known."""
    if not known:
        raise BadInput("a universal model needs at least one other job")

    def carried(of: Callable[[KnownJob], float]) -> tuple[float, float]:
        """(median, spread) of the logarithm of a coefficient over the others."""
        logs = [of(job) for job in known]
        return median(logs), float(np.std(logs, ddof=1)) if len(logs) > 1 else 1.0

    def coefficient(at: int) -> Callable[[KnownJob], float]:
        return lambda job: job.parallel.coefficients[at]

    fixed, fixed_spread = carried(coefficient(0))
    slope, slope_spread = carried(lambda job: job.parallel.coefficients[1] + math.log(job.largest_local_batch))
    inside, inside_spread = carried(coefficient(2))
    across, across_spread = carried(coefficient(3))
    others = [median(job.parallel.coefficients[at] for job in known) for at in (4, 5, 6)]
    spreads = np.array([fixed_spread, slope_spread, inside_spread, across_spread, 0.0, 0.0, 0.0])
    return ParallelModel(
        law=Law.OVERLAP,
        workers_per_node=known[0].parallel.workers_per_node,
        coefficients=(fixed, slope - math.log(largest_local_batch), inside, across, *others),
        scatter=median(job.parallel.scatter for job in known),
        freedom=max(2.0, len(known) - 1.0),
        covariance=np.diag(spreads**2),
        runs=0,
    )
