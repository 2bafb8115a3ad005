"""The progress points of one attempt at a training, and when it is expected to end."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mlcd.clouds.provider import JobProgress
from mlcd.problem import Problem

RECENT_SHARE = 0.5
"""The current speed is measured over this last share of the training so far."""
SETTLED_SECONDS = 5.0
"""The speed is unknown until this long after the first sample."""
TRAINING_QUIET_GAPS = 3.0
"""A job that has been silent this many times longer than ever before may hang: its current speed is unknown."""
MOST_REPORTS = 10_000
"""Reports that are kept; when there are more, every second one is dropped, so that a training of weeks stays small."""


@dataclass(kw_only=True)
class AttemptWatch:
    """The progress points of one attempt, and when it is expected to end."""

    work: float
    seconds_left: float
    clock: Callable[[], float] = time.monotonic
    last: JobProgress = field(default=JobProgress(0.0, 0.0), init=False)
    """The newest point."""
    startup_seconds: float = field(default=0.0, init=False)
    """Seconds from the order to the last point without a sample."""
    longest_gap: float = field(default=0.0, init=False)
    """Longest time so far between two reports of more samples, in seconds."""
    _reports: list[JobProgress] = field(default_factory=list, init=False)
    """The points with more samples than the one before; at most MOST_REPORTS, the first and the last always."""
    _before_last: JobProgress = field(default=JobProgress(0.0, 0.0), init=False)
    _looked: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def silent_seconds(self) -> float:
        """Seconds since the job last reported more samples; 0 before its first report."""
        return self.last.seconds - self._reports[-1].seconds if self._reports else 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether the job has been silent for unusually long."""
        return self.silent_seconds > max(SETTLED_SECONDS, TRAINING_QUIET_GAPS * self.longest_gap)

    def take(self, point: JobProgress) -> None:
        """Add a new point."""
        if point.samples > self.last.samples:
            if self._reports:
                self.longest_gap = max(self.longest_gap, point.seconds - self._reports[-1].seconds)
            self._reports.append(point)
            if len(self._reports) > MOST_REPORTS:
                self._reports = [*self._reports[:-1:2], self._reports[-1]]
        if point.samples <= 0:
            self.startup_seconds = max(point.seconds, self.startup_seconds)
        self._before_last, self.last = self.last, point

    def crossing(self) -> float:
        """Seconds at which the work was done, interpolated between the last two points."""
        last, before = self.last, self._before_last
        share = (self.work - before.samples) / (last.samples - before.samples)
        return before.seconds + share * (last.seconds - before.seconds)

    @property
    def is_over_budget(self) -> bool:
        """Whether `seconds_left` are over, and were before the work was done."""
        if self.last.seconds <= self.seconds_left:
            return False
        return self.last.samples < self.work or self.crossing() > self.seconds_left

    def samples_before(self, seconds: float) -> float:
        """Samples at a time shortly before the newest point, on the line through the last two points."""
        last, before = self.last, self._before_last
        speed = (last.samples - before.samples) / max(last.seconds - before.seconds, 1e-9)
        return max(last.samples - speed * (last.seconds - seconds), 0.0)

    def is_due(self, what: str, every_seconds: float) -> bool:
        """Whether `what` is due for another check; if so, its timer restarts."""
        if self.last.seconds - self._looked.get(what, -math.inf) < every_seconds:
            return False
        self._looked[what] = self.last.seconds
        return True

    def speed(self) -> float | None:
        """Samples/s over the last RECENT_SHARE of the training; None before it has settled.

        Measured from report to report, since a job may report once an epoch. A silence counts once it is unusual.
        """
        if len(self._reports) < 3 or self._reports[-1].seconds - self._reports[0].seconds < SETTLED_SECONDS:
            return None
        first, last = self._reports[0], self._reports[-1]
        begin = last.seconds - RECENT_SHARE * (last.seconds - first.seconds)
        start = next(p for p in reversed(self._reports) if p.seconds <= begin)
        silence = max(self.silent_seconds - self.longest_gap, 0.0)
        return (last.samples - start.samples) / (last.seconds - start.seconds + silence)

    def expected_end(self) -> float | None:
        """Seconds from the order to the end at the current speed; None before that has settled."""
        speed = self.speed()
        if speed is None:
            return None
        return self.last.seconds + (self.work - self.last.samples) / speed


class Hung(Exception):
    """The job hangs; `since` is when that was decided, on the watch's clock."""

    def __init__(self, message: str, since: float) -> None:
        super().__init__(message)
        self.since = since


def end_a_hang(watch: AttemptWatch, problem: Problem, *, nodes: int, silence: Callable[[], str]) -> None:
    """Raises Hung when a job with remaining work has been silent for unusually long.

    silence  what a job without a sample wrote instead; "" where that is not known
    """
    policy = problem.trial
    all_done = watch.last.samples >= watch.work and problem.target is None
    if not policy.watchdog_seconds or all_done:
        return
    if watch.last.samples <= 0:
        if watch.last.seconds >= policy.worst_seconds(nodes):
            after = f"it ended before its first sample after {watch.last.seconds:.0f} s"
            raise Hung(": ".join(filter(None, (after, silence()))), watch.clock())
    elif watch.silent_seconds >= max(policy.watchdog_seconds, TRAINING_QUIET_GAPS * watch.longest_gap):
        raise Hung(f"no progress for {watch.silent_seconds:.0f} s", watch.clock())
