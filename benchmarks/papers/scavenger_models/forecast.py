"""The four modes: each predicts step time and iterations of every configuration from what it may see."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlcd.bench.scavenger.truth import GPUS_PER_NODE, ClusterChoice
from mlcd.models import convergence, parallel
from mlcd.models.parallel import Law, ParallelModel, Refined
from mlcd.models.universal import JobDescription, KnownJob, universal
from papers.scavenger_models.observed import Observed


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Predicted step seconds of each configuration and iterations of each batch; tried ones as measured."""

    tried: tuple[ClusterChoice, ...]
    step_seconds: Mapping[ClusterChoice, float]
    iterations: Mapping[int, float]

    def seconds(self, choice: ClusterChoice) -> float:
        """The training to the target."""
        return self.iterations[choice.batch] * self.step_seconds[choice]


def full(seen: Observed) -> Forecast:
    """Every K timed at three batches: the law adjusted to pass through the timed points."""
    return _forecast(seen, Refined(model=_overlap(seen), runs=seen.runs), convergence.fit(seen.reached).steps)


def partial(seen: Observed) -> Forecast:
    """Corners and centre: the law alone."""
    return _forecast(seen, _overlap(seen), convergence.fit(seen.reached).steps)


def without_run(seen: Observed, known: Sequence[KnownJob], description: JobDescription | None) -> Forecast:
    """Without a run of this job: the other jobs' coefficients, by its description, or blind without one."""
    steps, iterations = universal(
        known,
        first_batch=seen.first_batch,
        largest_local_batch=seen.largest_local_batch,
        description=description,
    )
    return _forecast(seen, steps, iterations.steps)


def goodput(seen: Observed) -> Forecast:
    """Pollux's model of what `partial` sees: the law adjusted to the timed points, and the noise of those trainings."""
    return _forecast(seen, Refined(model=_overlap(seen), runs=seen.runs), bridged(seen))


def bridged(seen: Observed) -> Callable[[float], float]:
    """S(B) with the noise's curvature between known batches.

    Each known training and its noise give a law; between two batches the two laws are interpolated in ln B. At a known
    batch the result is the measured value. Where no training has known noise: the law fitted to all.
    """
    laws = {b: convergence.from_noise_course(b, course) for b, course in sorted(seen.courses.items()) if course}
    if not laws:
        return convergence.fit(seen.reached).steps
    known = [math.log(batch) for batch in laws]

    def steps(batch: float) -> float:
        logs = [math.log(law.steps(batch)) for law in laws.values()]
        return math.exp(float(np.interp(math.log(batch), known, logs)))

    return steps


def known_job(seen: Observed, description: JobDescription | None) -> KnownJob:
    """What a universal model learns from another, completely observed job."""
    return KnownJob(
        first_batch=seen.first_batch,
        largest_local_batch=seen.largest_local_batch,
        parallel=_overlap(seen),
        convergence=convergence.fit(seen.reached, exponent=1.0),
        description=description,
    )


def _overlap(seen: Observed) -> ParallelModel:
    return parallel.fit(seen.runs, Law.OVERLAP, workers_per_node=GPUS_PER_NODE)


def _forecast(seen: Observed, steps: ParallelModel | Refined, iterations: Callable[[float], float]) -> Forecast:
    measured = {choice: run.seconds for choice, run in zip(seen.tried, seen.runs, strict=True)}
    reached = {int(r.batch): r.steps for r in seen.reached}
    return Forecast(
        tried=seen.tried,
        step_seconds={c: measured.get(c) or steps.seconds(s) for c, s in seen.settings.items()},
        iterations={b: reached.get(b) or iterations(b) for b in {c.batch for c in seen.settings}},
    )
