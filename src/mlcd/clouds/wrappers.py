"""Clouds around a cloud: noise, failures and delay, on any of them and on each other: Noisy(Flaky(replay))."""

import math
import time
from collections.abc import Iterator, Sequence
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
    """A cloud that answers as `inner` does. Base of the wrappers; passes the known truth through."""

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
        """The inner cloud's. Raises TypeError where it does not know its truth."""
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
    """Trials run faster or slower by a log-normal factor of deviation `sigma`; the final run is left as it is."""

    purpose = Purpose.TRIAL

    def __init__(self, inner: Cloud, *, sigma: float, seed: int) -> None:
        if not 0 <= sigma < 1:
            raise ValueError("sigma lies in [0, 1)")
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
        return _Scaled(lease, math.exp(self.sigma * random.gauss()))


class NoisyRun(Noisy):
    """The final run is noisy and trials are left as they are: a separate experiment, to be reported as such."""

    purpose = Purpose.RUN

    @property
    def noise(self) -> float:
        """The inner cloud's: what trials differ by has not changed."""
        return self.inner.noise


class Flaky(Wrapped):
    """A share `rate` of all trials fails, in one of the ways of `kinds`; the final run never does."""

    def __init__(self, inner: Cloud, *, rate: float, seed: int, kinds: Sequence[FailureKind] = ALL_KINDS) -> None:
        if not 0 <= rate <= 1:
            raise ValueError("a rate lies in [0, 1]")
        if not kinds:
            raise ValueError("a flaky cloud needs a way to fail")
        super().__init__(inner)
        self.rate, self.seed, self.kinds = rate, seed, tuple(kinds)

    def lease(self, order: Order) -> Lease:
        """Raises LeaseFailed at once for CAPACITY (unpaid) and LAUNCH; other kinds strike minutes into the job."""
        random = generator("flaky", self.seed, order.config, order.attempt)
        if order.purpose is not Purpose.TRIAL or random.random() >= self.rate:
            return super().lease(order)
        kind = random.choice(self.kinds)
        seconds = random.uniform(60, 180)
        if kind is FailureKind.CAPACITY:
            raise LeaseFailed(kind, f"no capacity for {order.config}", seconds=seconds, billed=False)
        if kind is FailureKind.LAUNCH:
            raise LeaseFailed(kind, f"a node of {order.config} did not come up", seconds=seconds)
        lease = super().lease(order)
        return _Failing(lease, kind, random.uniform(120, 480))


class Delayed(Wrapped):
    """Every lease takes `real_seconds` of the real clock more: time to kill a process in."""

    def __init__(self, inner: Cloud, *, real_seconds: float) -> None:
        if real_seconds < 0:
            raise ValueError("a delay must not be negative")
        super().__init__(inner)
        self.real_seconds = real_seconds

    def lease(self, order: Order) -> Lease:
        """Sleeps, then leases."""
        time.sleep(self.real_seconds)
        return super().lease(order)


class _Around:
    """A lease around a lease: enters and leaves the inner one."""

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


class _Scaled(_Around):
    def __init__(self, inner: Lease, factor: float) -> None:
        super().__init__(inner)
        self.factor = factor

    def progress(self) -> Iterator[JobProgress]:
        for point in self.inner.progress():
            yield JobProgress(point.seconds, point.samples * self.factor)


class _Failing(_Around):
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
                raise LeaseFailed(self.kind, f"made to fail: {self.kind}", seconds=self.at_seconds)
