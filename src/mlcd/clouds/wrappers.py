"""Clouds that wrap a cloud to add noise, failures, delay or checkpoints. They compose: Noisy(Flaky(replay))."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType

from mlcd.clouds.chance import generator
from mlcd.clouds.provider import Cloud, JobProgress, Lease, LeaseFailed, Order, Purpose, Settled
from mlcd.space import Config
from mlcd.trial.trial import FailureKind

ALL_KINDS = (
    FailureKind.LAUNCH,
    FailureKind.CAPACITY,
    FailureKind.INTERRUPTED,
    FailureKind.HANG,
    FailureKind.ERROR,
)


class Wrapped:
    """A cloud that behaves as `inner`, known truth included. Base class of the wrappers."""

    def __init__(self, inner: Cloud) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        """The inner cloud's."""
        return self.inner.name

    @property
    def simulated(self) -> bool:
        """The inner cloud's."""
        return self.inner.simulated

    @property
    def noise(self) -> float:
        """The inner cloud's."""
        return self.inner.noise

    def lease(self, order: Order) -> Lease:
        """The inner cloud's."""
        return self.inner.lease(order)

    def true_samples_per_second(self, config: Config) -> float | None:
        """The inner cloud's. Raises TypeError where that has no known truth."""
        ask = getattr(self.inner, "true_samples_per_second", None)
        if ask is None:
            raise TypeError(f"{self.name} does not know its true speeds")
        speed = ask(config)
        return None if speed is None else float(speed)

    def stretch(self, config: Config) -> float:
        """The inner cloud's, 1 where it has none."""
        ask = getattr(self.inner, "stretch", None)
        return 1.0 if ask is None else float(ask(config))


class Noisy(Wrapped):
    """Scales the speed of trials by a log-normal factor of deviation `sigma`; the final run is unchanged."""

    purpose = Purpose.TRIAL

    def __init__(self, inner: Cloud, *, sigma: float, seed: int) -> None:
        if not 0 <= sigma < 1:
            raise ValueError(f"sigma: must be in [0, 1) (got {sigma})")
        super().__init__(inner)
        self.sigma, self.seed = sigma, seed

    @property
    def noise(self) -> float:
        """The inner cloud's and this one's together."""
        return math.hypot(self.inner.noise, self.sigma)

    def lease(self, order: Order) -> Lease:
        """The inner lease, its samples scaled by a factor keyed by (seed, configuration, attempt)."""
        lease = super().lease(order)
        if order.purpose is not self.purpose:
            return lease
        random = generator("noisy", self.purpose, self.seed, order.config, order.attempt)
        return _ScaledLease(lease, math.exp(self.sigma * random.gauss()))


class NoisyRun(Noisy):
    """Adds noise to the final run and leaves trials unchanged: a separate experiment, to be reported as such."""

    purpose = Purpose.RUN

    @property
    def noise(self) -> float:
        """The inner cloud's: the noise of trials is unchanged."""
        return self.inner.noise


class Reporting(Wrapped):
    """Makes trials report as on rented nodes, where the inner cloud only knows how fast a configuration is.

    Nothing for `start_seconds`, then every `every_seconds`, at rates around the inner one with log-normal deviation
    `sigma`. The final run is unchanged.
    """

    def __init__(self, inner: Cloud, *, start_seconds: float, every_seconds: float, sigma: float, seed: int) -> None:
        if not (start_seconds >= 0 and every_seconds > 0 and 0 <= sigma < 1):
            raise ValueError(f"out of bounds (got {start_seconds}, {every_seconds}, {sigma})")
        super().__init__(inner)
        self.start_seconds, self.every_seconds = start_seconds, every_seconds
        self.sigma, self.seed = sigma, seed

    def lease(self, order: Order) -> Lease:
        """The inner lease, with reports keyed by (seed, configuration, attempt)."""
        lease = super().lease(order)
        return _ReportingLease(lease, self, order) if order.purpose is Purpose.TRIAL else lease


class SlowerRun(Wrapped):
    """Makes the final run slower than the trials: its work takes 1 + `share` times as long."""

    def __init__(self, inner: Cloud, *, share: float) -> None:
        if not share >= 0:
            raise ValueError(f"share: must not be negative (got {share})")
        super().__init__(inner)
        self.share = share

    def lease(self, order: Order) -> Lease:
        """The inner lease; the final run's samples are divided by 1 + share."""
        lease = super().lease(order)
        return _ScaledLease(lease, 1 / (1 + self.share)) if order.purpose is Purpose.RUN else lease


class Flaky(Wrapped):
    """Makes a share `rate` of all trials fail, each in one of the ways of `kinds`; never the final run."""

    def __init__(self, inner: Cloud, *, rate: float, seed: int, kinds: Sequence[FailureKind] = ALL_KINDS) -> None:
        if not 0 <= rate <= 1:
            raise ValueError(f"rate: must be in [0, 1] (got {rate})")
        if not kinds:
            raise ValueError("kinds: must not be empty")
        super().__init__(inner)
        self.rate, self.seed, self.kinds = rate, seed, tuple(kinds)

    def lease(self, order: Order) -> Lease:
        """Raises LeaseFailed at once for CAPACITY (unpaid) and LAUNCH; other kinds occur minutes into the job."""
        random = generator("flaky", self.seed, order.config, order.attempt)
        if order.purpose is not Purpose.TRIAL or random.random() >= self.rate:
            return super().lease(order)
        kind = random.choice(self.kinds)
        seconds = min(random.uniform(60, 180), order.seconds)
        if kind is FailureKind.CAPACITY:
            raise LeaseFailed(kind, f"no capacity for {order.config}", seconds=seconds, billed=False)
        if kind is FailureKind.LAUNCH:
            raise LeaseFailed(kind, f"a node of {order.config} did not come up", seconds=seconds)
        lease = super().lease(order)
        return _FailingLease(lease, kind, min(random.uniform(120, 480), order.seconds))


class Resumed(Wrapped):
    """A simulated cloud whose jobs continue a training that is saved up to `base_samples`, and save what they do.

    restart_seconds  the least time from an order to the first sample, to save, release, start and load
    work_samples     where the job ends by itself: all of the training
    """

    def __init__(
        self, inner: Cloud, *, base_samples: float, restart_seconds: float, work_samples: float = math.inf
    ) -> None:
        if not (base_samples >= 0 and restart_seconds >= 0 and work_samples > 0):
            raise ValueError(f"must not be negative (got {base_samples}, {restart_seconds}, {work_samples})")
        super().__init__(inner)
        self.base_samples, self.restart_seconds, self.work_samples = base_samples, restart_seconds, work_samples

    def lease(self, order: Order) -> Lease:
        """The inner lease, later where it starts faster than a restart."""
        return _ResumedLease(super().lease(order), self, order)


class Delayed(Wrapped):
    """Delays every lease by `real_seconds` of wall-clock time, so that tests can kill the process meanwhile."""

    def __init__(self, inner: Cloud, *, real_seconds: float) -> None:
        if real_seconds < 0:
            raise ValueError(f"real_seconds: must not be negative (got {real_seconds})")
        super().__init__(inner)
        self.real_seconds = real_seconds

    def lease(self, order: Order) -> Lease:
        """Sleeps, then leases."""
        time.sleep(self.real_seconds)
        return super().lease(order)


class _WrappedLease:
    """A lease that wraps a lease: enters and exits the inner one."""

    def __init__(self, inner: Lease) -> None:
        self.inner = inner

    def __enter__(self) -> Lease:
        self.inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self.inner.__exit__(kind, value, trace)

    def progress(self) -> Iterator[JobProgress]:
        return self.inner.progress()

    def finish(self, at: JobProgress) -> Settled:
        return self.inner.finish(at)


class _ScaledLease(_WrappedLease):
    def __init__(self, inner: Lease, factor: float) -> None:
        super().__init__(inner)
        self.factor = factor

    def progress(self) -> Iterator[JobProgress]:
        for point in self.inner.progress():
            yield JobProgress(point.seconds, point.samples * self.factor)


class _ReportingLease(_WrappedLease):
    def __init__(self, inner: Lease, cloud: Reporting, order: Order) -> None:
        super().__init__(inner)
        self.cloud, self.order = cloud, order

    def progress(self) -> Iterator[JobProgress]:
        cloud, order = self.cloud, self.order
        inner = self.inner.progress()
        first, second = next(inner), next(inner)  # a job that fails does so here
        per_second = (second.samples - first.samples) / (second.seconds - first.seconds)
        random = generator("reporting", cloud.seed, order.config, order.attempt)
        seconds, samples = cloud.start_seconds, 0.0
        while True:
            yield JobProgress(seconds, samples)
            seconds += cloud.every_seconds
            factor = math.exp(cloud.sigma * random.gauss() - cloud.sigma**2 / 2)  # 1 in the mean
            samples += per_second * cloud.every_seconds * factor


class _ResumedLease(_WrappedLease):
    def __init__(self, inner: Lease, cloud: Resumed, order: Order) -> None:
        super().__init__(inner)
        self.cloud, self.most_seconds = cloud, order.seconds
        self.is_run = order.purpose is Purpose.RUN
        self._before = self._last = JobProgress(0.0, 0.0)

    def progress(self) -> Iterator[JobProgress]:
        left = self.cloud.work_samples - self.cloud.base_samples
        for point in self._points():
            self._before, self._last = self._last, point
            if self._last.samples >= left > self._before.samples:
                share = (left - self._before.samples) / (self._last.samples - self._before.samples)
                ended = self._before.seconds + share * (self._last.seconds - self._before.seconds)
                self._last = JobProgress(ended, left)
                yield self._last
                return
            yield self._last

    def _points(self) -> Iterator[JobProgress]:
        """The inner lease's points, later where it starts faster than a restart.

        A training that is interrupted is so as much later, with what was saved before it.
        """
        later: float | None = None
        try:
            for point in self.inner.progress():
                if later is None:
                    later = max(self.cloud.restart_seconds - point.seconds, 0.0)
                yield JobProgress(point.seconds + later, point.samples)
        except LeaseFailed as failed:
            if not self.is_run:
                raise
            raise LeaseFailed(
                failed.kind,
                failed.message,
                seconds=failed.seconds + (later or 0.0),
                billed=failed.billed,
                reached_samples=self.cloud.base_samples + failed.reached_samples if failed.reached_samples else 0.0,
            ) from failed

    def finish(self, at: JobProgress) -> Settled:
        """Points may be minutes apart: what comes after the authorised time, which is not paid, is not saved."""
        samples, before = at.samples, self._before
        if at.seconds > max(self.most_seconds, before.seconds):
            share = max(self.most_seconds - before.seconds, 0.0) / (at.seconds - before.seconds)
            samples = before.samples + share * (at.samples - before.samples)
        is_finished = samples >= self.cloud.work_samples - self.cloud.base_samples
        reached = max(self.cloud.work_samples if is_finished else 0.0, self.cloud.base_samples + samples)
        return replace(self.inner.finish(at), reached_samples=reached, is_finished=is_finished)


class _FailingLease(_WrappedLease):
    def __init__(self, inner: Lease, kind: FailureKind, at_seconds: float) -> None:
        super().__init__(inner)
        self.kind, self.at_seconds = kind, at_seconds

    def progress(self) -> Iterator[JobProgress]:
        reached = 0.0
        for point in self.inner.progress():
            if point.seconds < self.at_seconds:
                reached = point.samples
                yield point
            elif self.kind is FailureKind.HANG:
                yield JobProgress(point.seconds, reached)
            else:
                raise LeaseFailed(self.kind, f"injected failure: {self.kind}", seconds=self.at_seconds)
