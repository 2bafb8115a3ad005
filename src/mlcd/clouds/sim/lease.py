"""What happens on leased nodes, in simulated seconds: nothing sleeps."""

import math
import random as random_module
from collections.abc import Iterator
from types import TracebackType

from mlcd.clouds.provider import JobProgress, LeaseFailed, Settled
from mlcd.space import Config
from mlcd.trial.trial import FailureKind

REPORT_SECONDS = 15.0
WARM_UP_SECONDS = 90.0
WARM_UP_DEPTH = 0.45
STRAGGLER_SPEED_SHARE = 0.6
"""A straggler reduces all nodes to this share of their speed."""
STEP_JITTER = 0.05
"""Relative deviation of one training step."""


class SimLease:
    """Nodes that need no release."""

    def __enter__(self) -> "SimLease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was started."""

    def progress(self) -> Iterator[JobProgress]:
        """See mlcd.clouds.provider.Lease."""
        raise NotImplementedError

    def finish(self, at: JobProgress) -> Settled:
        """Nothing is saved: a simulated trial is discarded."""
        return Settled(seconds=at.seconds)


class OutOfMemoryLease(SimLease):
    """A job that dies in its first step."""

    def __init__(self, config: Config, *, seconds: float, too_many: bool) -> None:
        self.config, self.seconds, self.too_many = config, seconds, too_many

    def progress(self) -> Iterator[JobProgress]:
        """Raises LeaseFailed before any progress."""
        if self.too_many:
            message = f"the global batch has fewer samples than {self.config} has nodes"
            raise LeaseFailed(FailureKind.ERROR, message, seconds=self.seconds)
        raise LeaseFailed(FailureKind.OUT_OF_MEMORY, f"out of memory on {self.config}", seconds=self.seconds)
        yield  # pragma: no cover - makes this a generator: the failure comes when progress is watched


class RunLease(SimLease):
    """The final run: constant speed after start-up, reported at growing intervals.

    interrupted_at      when its nodes are taken away; None: never
    checkpoint_seconds  training between two checkpoints; None: it saves none
    save_seconds        for which the training waits at each
    """

    def __init__(
        self,
        *,
        startup_seconds: float,
        samples_per_second: float,
        interrupted_at: float | None = None,
        checkpoint_seconds: float | None = None,
        save_seconds: float = 0.0,
    ) -> None:
        self.startup_seconds, self.samples_per_second = startup_seconds, samples_per_second
        self.interrupted_at, self.checkpoint_seconds, self.save_seconds = (
            interrupted_at,
            checkpoint_seconds,
            save_seconds,
        )

    def progress(self) -> Iterator[JobProgress]:
        """Endless; steps grow with the elapsed time, so that days take few points."""
        trained = 0.0
        while True:
            now = self.startup_seconds + trained
            if self.interrupted_at is not None and now >= self.interrupted_at:
                yield JobProgress(self.interrupted_at, self._samples(self.interrupted_at))
                raise LeaseFailed(
                    FailureKind.INTERRUPTED,
                    "a spot node was taken back",
                    seconds=self.interrupted_at,
                    reached_samples=self._saved_samples(self.interrupted_at),
                )
            yield JobProgress(now, self._samples(now))
            trained += max(60.0, trained / 16)

    def _samples(self, seconds: float) -> float:
        """Samples by then, with the time for saving spread over the training."""
        cycle = 1.0
        if self.checkpoint_seconds is not None:
            cycle = self.checkpoint_seconds / (self.checkpoint_seconds + self.save_seconds)
        return max(seconds - self.startup_seconds, 0.0) * self.samples_per_second * cycle

    def _saved_samples(self, seconds: float) -> float:
        if self.checkpoint_seconds is None:
            return 0.0
        saved = max(seconds - self.startup_seconds, 0.0) // (self.checkpoint_seconds + self.save_seconds)
        return saved * self.checkpoint_seconds * self.samples_per_second


class TrialLease(SimLease):
    """A trial: warm-up, then steps that jitter around `samples_per_second`, with stragglers, interruptions and hangs.

    Once warm, the expected speed is exactly `samples_per_second`: it includes the losses to stragglers.
    """

    def __init__(
        self,
        *,
        startup_seconds: float,
        samples_per_second: float,
        step_seconds: float,
        straggler: float,
        interrupted_at: float | None,
        hangs_at: float | None,
        random: random_module.Random,
    ) -> None:
        self.startup_seconds, self.samples_per_second = startup_seconds, samples_per_second
        self.jitter = STEP_JITTER / math.sqrt(max(1.0, REPORT_SECONDS / step_seconds))
        self.straggler, self.interrupted_at, self.hangs_at = straggler, interrupted_at, hangs_at
        self.random_state = random.getstate()

    def progress(self) -> Iterator[JobProgress]:
        """Endless, a point every REPORT_SECONDS; every call gives the same points."""
        random = random_module.Random()  # noqa: S311 - a simulation
        random.setstate(self.random_state)
        self._check_interruption(self.startup_seconds)
        trained = samples = 0.0
        undisturbed = self.samples_per_second / (1 - self.straggler * (1 - STRAGGLER_SPEED_SHARE))
        while True:
            now = self.startup_seconds + trained
            yield JobProgress(now, samples)
            self._check_interruption(now + REPORT_SECONDS)
            warmth = _warmth(trained, trained + REPORT_SECONDS)
            slowed = STRAGGLER_SPEED_SHARE if random.random() < self.straggler else 1.0
            rate = undisturbed * warmth * slowed * max(0.05, 1 + self.jitter * random.gauss())
            if self.hangs_at is None or now < self.hangs_at:
                samples += rate * REPORT_SECONDS
            trained += REPORT_SECONDS

    def _check_interruption(self, until: float) -> None:
        if self.interrupted_at is not None and self.interrupted_at <= until:
            raise LeaseFailed(FailureKind.INTERRUPTED, "a spot node was taken back", seconds=self.interrupted_at)


def _warmth(start: float, end: float) -> float:
    """Mean of 1 - depth x (1 - t / warm-up)^2 over the interval; 1 once warm."""

    def lost(at: float) -> float:
        coldness = max(0.0, 1 - at / WARM_UP_SECONDS)
        return WARM_UP_DEPTH * WARM_UP_SECONDS / 3 * (1 - coldness**3)

    return 1 - (lost(end) - lost(start)) / (end - start)
