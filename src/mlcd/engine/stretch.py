"""Stretches of a training: the nodes that are kept from one stretch to the next, and the progress since its start."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from mlcd.clouds.provider import JobProgress, Order, Settled
from mlcd.clouds.reading import Listening, Reading
from mlcd.clouds.silence import ExplainsSilence
from mlcd.engine.checked import CheckedCloud, CheckedLease
from mlcd.profiler.measure import warnings

START = JobProgress(0.0, 0.0)


@dataclass(kw_only=True)
class TrainingNodes:
    """The nodes of one attempt at the training, as a context: left, they are released, unless they are kept.

    cloud  where they were ordered
    at     the job's progress where the current stretch began, since the order
    """

    cloud: CheckedCloud
    order: Order
    at: JobProgress = START
    _lease: CheckedLease | None = field(default=None, init=False)
    _points: Iterator[JobProgress] = field(default_factory=lambda: iter(()), init=False)
    _leaving: ExitStack = field(default_factory=ExitStack, init=False)
    _kept: bool = field(default=False, init=False)
    _told: set[str] = field(default_factory=set, init=False)

    def __enter__(self) -> Self:
        """Order the nodes, unless they were kept. Raises as a cloud's lease() does."""
        self._kept = False
        if self._lease is None:
            self._lease = self._leaving.enter_context(self.cloud.lease(self.order))
            self._points = self._lease.progress()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._kept:
            self._leaving.__exit__(kind, value, trace)

    def keep(self, at: JobProgress) -> None:
        """Keep the nodes: the job goes on, and the next stretch begins `at` this progress of the current one."""
        self.at = self._since_order(at)
        self._kept = True

    def release(self) -> None:
        """Give kept nodes back, with what the job saved by itself."""
        self._leaving.close()

    @property
    def seconds_left(self) -> float:
        """Seconds of the current stretch after which the nodes end themselves."""
        return self.order.seconds - self.at.seconds

    @property
    def listening(self) -> Listening | None:
        """The lease, if its job reports more than progress."""
        return self._lease if isinstance(self._lease, Listening) else None

    @property
    def heard(self) -> list[Reading]:
        """What the job has reported besides its progress."""
        return [] if self.listening is None else self.listening.heard

    def silence(self) -> str:
        """What a job without a sample wrote instead; "" where that is not known."""
        return self._lease.silence() if isinstance(self._lease, ExplainsSilence) else ""

    def new_warnings(self) -> tuple[str, ...]:
        """Warnings of the job that were not returned before."""
        new = tuple(text for text in warnings(self.heard) if text not in self._told)
        self._told.update(new)
        return new

    def progress(self) -> Iterator[JobProgress]:
        """The job's progress in the current stretch. Raises LeaseFailed as a lease does."""
        start = self.at
        for point in self._points:
            yield JobProgress(max(point.seconds - start.seconds, 0.0), max(point.samples - start.samples, 0.0))

    def finish(self, at: JobProgress) -> Settled:
        """End the job after its last progress `at`; the seconds are those of the current stretch."""
        if self._lease is None:
            raise RuntimeError("the nodes were not ordered")
        settled = self._lease.finish(self._since_order(at))
        return replace(settled, seconds=max(settled.seconds - self.at.seconds, 0.0))

    def _since_order(self, at: JobProgress) -> JobProgress:
        return JobProgress(self.at.seconds + at.seconds, self.at.samples + at.samples)


def points_after(points: Iterable[JobProgress], seconds: float) -> Iterator[JobProgress]:
    """The points after `seconds`, counted from there, on the line between the points around it."""
    if seconds <= 0:
        yield from points
        return
    before, start = START, None
    for point in points:
        if start is None:
            if point.seconds < seconds:
                before = point
                continue
            share = (seconds - before.seconds) / (point.seconds - before.seconds)
            start = JobProgress(seconds, before.samples + share * (point.samples - before.samples))
            yield START
        if point.seconds > seconds:
            yield JobProgress(point.seconds - start.seconds, point.samples - start.samples)
