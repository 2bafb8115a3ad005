"""Scavenger's no-search model: a job's step time and convergence from other jobs' coefficients, with no run of it.

What carries over depends on what is known about the new job beforehand:

described  seconds per sample ~ its arithmetic, seconds of an exchange ~ its parameters, samples to the target ~ the
           planned samples: the medians, over the other jobs, of those ratios
blind      nothing but the user's bounds, the smallest batch and what fits in one worker's memory: a step that fills the
           memory, and a training at the smallest batch, take the median of the other jobs

Either way the fixed time of a step, the growth of the exchange, its overlap and the critical batch over the smallest
batch are medians too. The spread over the other jobs is the uncertainty of the prediction.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from mlcd.errors import BadInput
from mlcd.models.convergence import ConvergenceModel
from mlcd.models.parallel import Law, ParallelModel


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDescription:
    """What is known about a job before it runs.

    gflop_per_sample  arithmetic of one sample, forward and backward, in units of 10^9 operations
    """

    parameters: float
    gflop_per_sample: float
    samples_per_epoch: float
    epochs: float

    def __post_init__(self) -> None:
        values = (self.parameters, self.gflop_per_sample, self.samples_per_epoch, self.epochs)
        if not all(math.isfinite(value) and value > 0 for value in values):
            raise BadInput("a job's description needs positive parameters, operations, samples and epochs")

    @property
    def planned_samples(self) -> float:
        """Samples of the whole schedule."""
        return self.samples_per_epoch * self.epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """Another job's fitted models: the overlap law, and S(B) with p = 1."""

    first_batch: float
    largest_local_batch: float
    parallel: ParallelModel
    convergence: ConvergenceModel
    description: JobDescription | None = None

    def __post_init__(self) -> None:
        if self.parallel.law is not Law.OVERLAP or self.convergence.exponent != 1:
            raise BadInput("a known job must be fitted with the overlap law and p = 1")


def universal(
    known: Sequence[KnownJob],
    *,
    first_batch: float,
    largest_local_batch: float,
    description: JobDescription | None = None,
) -> tuple[ParallelModel, ConvergenceModel]:
    """The new job's two models. Raises BadInput if no other job is known, or none with a description."""
    jobs = [job for job in known if description is None or job.description is not None]
    if not jobs:
        raise BadInput(
            "a universal model needs at least one other job" + (" with a description" if description else "")
        )

    def carried(of: Callable[[KnownJob], float], per: Callable[[JobDescription], float] | None) -> tuple[float, float]:
        """(median, spread) of ln of a coefficient over the others, scaled by `per` of each and of the new job."""
        logs = []
        for job in jobs:
            scale = per(job.description) if per and description and job.description else 1.0
            logs.append(of(job) - math.log(scale))
        ours = math.log(per(description)) if per and description else 0.0
        return median(logs) + ours, float(np.std(logs, ddof=1)) if len(logs) > 1 else 1.0

    def coefficient(at: int) -> Callable[[KnownJob], float]:
        return lambda job: job.parallel.coefficients[at]

    if description is None:
        slope, slope_spread = carried(lambda j: j.parallel.coefficients[1] + math.log(j.largest_local_batch), None)
        slope -= math.log(largest_local_batch)
        work, work_spread = carried(lambda j: math.log(j.convergence.steps(j.first_batch)), None)
        work += math.log(first_batch)
    else:
        slope, slope_spread = carried(coefficient(1), lambda d: d.gflop_per_sample)
        work, work_spread = carried(
            lambda j: math.log(j.convergence.steps(j.first_batch) * j.first_batch), lambda d: d.planned_samples
        )
    fixed, fixed_spread = carried(coefficient(0), None)
    inside, inside_spread = carried(coefficient(2), lambda d: d.parameters)
    across, across_spread = carried(coefficient(3), lambda d: d.parameters)
    others = [median(job.parallel.coefficients[at] for job in jobs) for at in (4, 5, 6)]
    spreads = np.array([fixed_spread, slope_spread, inside_spread, across_spread, 0.0, 0.0, 0.0])
    parallel = ParallelModel(
        law=Law.OVERLAP,
        workers_per_node=jobs[0].parallel.workers_per_node,
        coefficients=(fixed, slope, inside, across, *others),
        scatter=median(job.parallel.scatter for job in jobs),
        freedom=max(2.0, len(jobs) - 1.0),
        covariance=np.diag(spreads**2),
        runs=0,
    )
    ratio = math.exp(median(math.log(max(j.convergence.critical, 1e-9) / j.first_batch) for j in jobs))
    critical = ratio * first_batch
    convergence = ConvergenceModel(
        floor=math.exp(work) / first_batch / (1 + critical / first_batch),
        critical=critical,
        exponent=1.0,
        deviation=max(work_spread, 0.08),
        freedom=max(2.0, len(jobs) - 1.0),
    )
    return parallel, convergence
