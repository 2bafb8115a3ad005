"""A measured training as a cloud: jobs with the tables' step times that report noise and metric, and end.

The state of a training is its progress u from 0 to 1, the target. A step at batch B adds 1/iterations(B), whatever
the batch was before: the tables have no training that changed its batch. A lease starts from the last checkpoint and
saves one when it finishes, as jobs with `mlcd.checkpoint` do.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType

from mlcd.bench.scavenger.truth import ClusterChoice, ScavengerTruth
from mlcd.clouds.provider import JobProgress, Order, Purpose, Settled
from mlcd.clouds.reading import GradientNorms, Reading
from mlcd.space import Config

METRIC = "metric"
START_SECONDS = 60.0
"""From a lease's start to its first sample: checkpoint, new processes, the first batch. Sources give 30 to 90 s."""
REPORTS_PER_TRAINING = 100
"""Number of reports of a whole training; a trial reports every step or every second, whichever is longer."""


def choice_of(config: Config) -> ClusterChoice:
    """K and B."""
    return ClusterChoice(workers=config.nodes, batch=int(config["batch"]))


@dataclass(kw_only=True)
class MeasuredTraining:
    """One training of a model, from its initial weights to its target.

    simulated  False: the engine ends a simulated training by its own count of the work; this job ends by itself at the
               tables' target, as real jobs do
    progress   u at the last checkpoint; `samples` are those processed until then
    """

    truth: ScavengerTruth
    name: str = "replay/trainings"
    simulated: bool = field(default=False, init=False)
    noise: float = field(default=0.0, init=False)
    progress: float = field(default=0.0, init=False)
    samples: float = field(default=0.0, init=False)

    def lease(self, order: Order) -> "MeasuredLease":
        """See Cloud."""
        return MeasuredLease(training=self, order=order)

    def reached_samples(self, run_id: str) -> float:  # noqa: ARG002 - there is one run
        """See Checkpointed."""
        return self.samples


@dataclass(kw_only=True)
class MeasuredLease:
    """A job on K GPUs with batch B that continues from the last checkpoint; it is also `Listening`."""

    training: MeasuredTraining
    order: Order
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

    def progress(self) -> Iterator[JobProgress]:
        """See Lease."""
        truth, choice = self.training.truth, self.choice
        step = truth.step_seconds(choice)
        needed = max(1 - self.training.progress, 0.0) * truth.iterations[choice.batch]
        every = 1.0 if self.order.purpose is Purpose.TRIAL else max(needed * step / REPORTS_PER_TRAINING, 1.0)
        stride = max(math.ceil(every / step), 1)
        yield JobProgress(START_SECONDS, 0.0)
        while self._steps < needed:
            before, self._steps = self._steps, min(self._steps + stride, needed)
            self._report(before, ended=self._steps >= needed)
            yield JobProgress(START_SECONDS + self._steps * step, self._steps * choice.batch)

    def finish(self, at: JobProgress) -> Settled:
        """See Lease. The checkpoint is at the last reported step."""
        training, choice = self.training, self.choice
        training.progress += self._steps / training.truth.iterations[choice.batch]
        training.samples += self._steps * choice.batch
        return Settled(seconds=at.seconds, reached_samples=training.samples)

    def _report(self, before: float, *, ended: bool) -> None:
        """Report the table's epochs that ended since step `before`, and the current norms of the gradients."""
        training, batch = self.training, self.choice.batch
        truth = training.truth
        done = training.progress * truth.iterations[batch]
        epochs = truth.epochs[batch]
        for epoch in epochs:
            if done + before < epoch.iteration <= done + self._steps and not ended:
                samples = training.samples + (epoch.iteration - done) * batch
                self.heard.append(Reading(seconds=0.0, samples=samples, metrics={METRIC: epoch.metric}))
        now = next((e for e in epochs if e.iteration >= done + self._steps), epochs[-1])
        norms = None
        if now.grad_sqr > 0 and now.grad_var >= 0:
            norms = norms_of(truth.batches[0] * now.grad_var / now.grad_sqr, self.choice)
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
