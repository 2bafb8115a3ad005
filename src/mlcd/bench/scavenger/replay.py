"""A measured training as a cloud: jobs with the tables' step times that report noise and metric, and end.

The state of a training is its progress u from 0 to 1, the target (ScavengerTruth.progress_at). A step at batch B brings
what it brought in the table at that progress, whatever the batch was before: the tables have no training that changed
its batch. A lease starts from the last checkpoint and saves one when it finishes, as jobs with `mlcd.checkpoint` do.

A seed draws what a user's nodes would add: the speed of a trial, the time a lease takes to start, and the norms of
every report.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType

import numpy as np

from mlcd.bench.scavenger.truth import ClusterChoice, ScavengerTruth
from mlcd.clouds.provider import JobProgress, Order, Purpose, Settled
from mlcd.clouds.reading import GradientNorms, Reading
from mlcd.space import Config

METRIC = "metric"
START_SECONDS = (30.0, 90.0)
"""From a lease's start to its first sample: checkpoint, new processes, the first batch. Drawn evenly; the sources
give these two."""
MEAN_START_SECONDS = sum(START_SECONDS) / 2
SPEED_DEVIATION = 0.03
"""Relative deviation of a trial's speed from the table's. The training has the table's."""
NOISE_DEVIATION, REPORT_DEVIATION = 0.15, 0.3
"""Relative deviations of the noise scale that a lease reports: of the lease as a whole, and of each report."""
REPORTS_PER_TRAINING = 40
"""Number of reports of a whole training; a trial reports every step or every second, whichever is longer."""


def choice_of(config: Config) -> ClusterChoice:
    """K and B."""
    return ClusterChoice(workers=config.nodes, batch=int(config["batch"]))


@dataclass(kw_only=True)
class MeasuredTraining:
    """One training of a model, from its initial weights to its target.

    seed       of what differs between two runs; None: everything is as in the tables, and starts take the mean
    simulated  False: the engine ends a simulated training by its own count of the work; this job ends by itself at the
               tables' target, as real jobs do
    progress   u at the last checkpoint; `samples` are those processed until then
    starts     seconds that each lease for the training itself took to start
    """

    truth: ScavengerTruth
    seed: int | None = None
    name: str = "replay/trainings"
    simulated: bool = field(default=False, init=False)
    progress: float = field(default=0.0, init=False)
    samples: float = field(default=0.0, init=False)
    leases: int = field(default=0, init=False)
    starts: list[float] = field(default_factory=list, init=False)

    @property
    def noise(self) -> float:
        """See Cloud."""
        return 0.0 if self.seed is None else SPEED_DEVIATION

    def lease(self, order: Order) -> "MeasuredLease":
        """See Cloud."""
        self.leases += 1
        random = None if self.seed is None else np.random.default_rng([self.seed, self.leases])
        return MeasuredLease(training=self, order=order, random=random)

    def reached_samples(self, run_id: str) -> float:  # noqa: ARG002 - there is one run
        """See Checkpointed."""
        return self.samples


@dataclass(kw_only=True)
class MeasuredLease:
    """A job on K GPUs with batch B that continues from the last checkpoint; it is also `Listening`."""

    training: MeasuredTraining
    order: Order
    random: np.random.Generator | None = None
    heard: list[Reading] = field(default_factory=list)
    _steps: float = field(default=0.0, init=False)

    def __enter__(self) -> "MeasuredLease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def choice(self) -> ClusterChoice:
        """K and B."""
        return choice_of(self.order.config)

    @cached_property
    def start_seconds(self) -> float:
        """From the order to the first sample."""
        return MEAN_START_SECONDS if self.random is None else float(self.random.uniform(*START_SECONDS))

    @cached_property
    def _from_step(self) -> float:
        """Steps of a training at this batch alone until the checkpoint's progress."""
        return self.training.truth.iterations_at(self.choice.batch, self.training.progress)

    def progress(self) -> Iterator[JobProgress]:
        """See Lease."""
        truth, choice = self.training.truth, self.choice
        start, is_trial = self.start_seconds, self.order.purpose is Purpose.TRIAL
        step = truth.step_seconds(choice) * (self._factor(SPEED_DEVIATION) if is_trial else 1.0)
        noise = self._factor(NOISE_DEVIATION)
        needed = max(truth.iterations[choice.batch] - self._from_step, 0.0)
        every = 1.0 if is_trial else max(needed * step / REPORTS_PER_TRAINING, 1.0)
        stride = max(math.ceil(every / step), 1)
        if not is_trial:
            self.training.starts.append(start)
        yield JobProgress(start, 0.0)
        while self._steps < needed:
            before, self._steps = self._steps, min(self._steps + stride, needed)
            self._report(before, noise, ended=self._steps >= needed)
            yield JobProgress(start + self._steps * step, self._steps * choice.batch)

    def finish(self, at: JobProgress) -> Settled:
        """See Lease. The checkpoint is at the last reported step."""
        training, batch = self.training, self.choice.batch
        training.progress = training.truth.progress_at(batch, self._from_step + self._steps)
        training.samples += self._steps * batch
        return Settled(seconds=at.seconds, reached_samples=training.samples)

    def _factor(self, deviation: float) -> float:
        """A factor around 1, with this deviation of its logarithm; 1 without a seed."""
        return 1.0 if self.random is None else math.exp(deviation * float(self.random.standard_normal()))

    def _report(self, before: float, noise_factor: float, *, ended: bool) -> None:
        """Report the table's epochs that ended since step `before`, and the current norms of the gradients."""
        training, batch = self.training, self.choice.batch
        truth, first = training.truth, self._from_step
        for epoch in truth.epochs[batch]:
            if first + before < epoch.iteration <= first + self._steps and not ended:
                samples = training.samples + (epoch.iteration - first) * batch
                self.heard.append(Reading(seconds=0.0, samples=samples, metrics={METRIC: epoch.metric}))
        noise = truth.noise_at(batch, first + self._steps)
        norms = None
        if noise is not None:
            norms = norms_of(noise * noise_factor * self._factor(REPORT_DEVIATION), self.choice)
        metrics = {METRIC: truth.target} if ended else {}
        samples = training.samples + self._steps * batch
        self.heard.append(Reading(seconds=0.0, samples=samples, noise=norms, metrics=metrics))


def norms_of(noise_scale: float, choice: ClusterChoice) -> GradientNorms:
    """The expected report of a job with this noise scale, with |G|^2 = 1 (see mlcd.models.noise)."""
    workers, batch = choice.workers, choice.batch
    total = 1 + noise_scale / batch
    if workers == 1:
        return GradientNorms(workers=1, batch=batch, before=total, now=total, dot=1.0)
    return GradientNorms(workers=workers, batch=batch, local=1 + noise_scale * workers / batch, total=total)
