"""The points of one attempt at a training, and what they say of its end."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mlcd.clouds.provider import JobProgress

RECENT = 0.5
"""The speed of now is taken over this last share of the training so far."""
SETTLED_SECONDS = 5.0
"""Sooner after its first sample a training's speed says nothing."""
QUIET_GAPS = 3.0
"""A job that is silent for so many times its longest silence yet may hang: its speed of now says nothing."""


@dataclass(kw_only=True)
class AttemptWatch:
    """The points of one attempt, and what they say of its end."""

    work: float
    seconds_left: float
    clock: Callable[[], float] = time.monotonic
    points: list[JobProgress] = field(default_factory=list)
    longest_gap: float = field(default=0.0, init=False)
    """Between two reports of more samples so far."""
    _reports: list[JobProgress] = field(default_factory=list, init=False)
    """The points with more samples than the one before."""
    _looked: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def last(self) -> JobProgress:
        """The newest point."""
        return self.points[-1] if self.points else JobProgress(0.0, 0.0)

    @property
    def silent_seconds(self) -> float:
        """Since the job reported more samples last; 0 before it has reported any."""
        return self.last.seconds - self._reports[-1].seconds if self._reports else 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether the job has been silent for longer than is usual for it."""
        return self.silent_seconds > max(SETTLED_SECONDS, QUIET_GAPS * self.longest_gap)

    def take(self, point: JobProgress) -> None:
        """A new point."""
        if point.samples > self.last.samples:
            if self._reports:
                self.longest_gap = max(self.longest_gap, point.seconds - self._reports[-1].seconds)
            self._reports.append(point)
        self.points.append(point)

    def crossing(self) -> float:
        """When the work was done, between the last two points."""
        last = self.points[-1]
        before = self.points[-2] if len(self.points) > 1 else JobProgress(0.0, 0.0)
        share = (self.work - before.samples) / (last.samples - before.samples)
        return before.seconds + share * (last.seconds - before.seconds)

    @property
    def startup_seconds(self) -> float:
        """From the order to the last point without a sample."""
        return max((p.seconds for p in self.points if p.samples <= 0), default=0.0)

    def is_due(self, what: str, every_seconds: float) -> bool:
        """Whether it is time for another look at `what`; the look is then taken."""
        if self.last.seconds - self._looked.get(what, -math.inf) < every_seconds:
            return False
        self._looked[what] = self.last.seconds
        return True

    def speed(self) -> float | None:
        """Samples/s over the last share of the training; None before it has settled.

        From report to report, since a job may report once an epoch; a silence counts from where it is unusual.
        """
        if len(self._reports) < 3 or self._reports[-1].seconds - self._reports[0].seconds < SETTLED_SECONDS:
            return None
        first, last = self._reports[0], self._reports[-1]
        begin = last.seconds - RECENT * (last.seconds - first.seconds)
        start = next(p for p in reversed(self._reports) if p.seconds <= begin)
        silence = max(self.silent_seconds - self.longest_gap, 0.0)
        return (last.samples - start.samples) / (last.seconds - start.seconds + silence)

    def expected_end(self) -> float | None:
        """Seconds from the order to the end, at the speed of now; None before that has settled."""
        speed = self.speed()
        if speed is None:
            return None
        return self.last.seconds + (self.work - self.last.samples) / speed
