"""The arrival patterns of requests; each is one loop over a wire."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mlcd.loadgen.result import percentile
from mlcd.loadgen.wire import Done

_BLOCKS = 5


class Sender(Protocol):
    """What the patterns need of a wire. For one thread; only `wait` blocks."""

    @property
    def under_way(self) -> int:
        """Requests that have not ended yet."""
        ...

    @property
    def oldest(self) -> float:
        """When the oldest of them was due; now, where there is none."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether another request may be sent now."""
        ...

    def send(self, intended: float, tag: int = 0) -> None:
        """Send a request; its latency counts from `intended`."""
        ...

    def wait(self, seconds: float) -> Sequence[Done]:
        """Wait until a request ends, for `seconds` at most; returns those that ended."""
        ...


@dataclass(kw_only=True)
class LoadPhase:
    """What was measured from `begun` to `ended` (time.perf_counter).

    latencies    seconds of each request, or query, that ended without error, in order of completion
    finished     when each of those ended
    rate         offered, in requests a second; 0 in closed loops
    late         seconds from when each request was due until it was sent
    requests     that were sent and ended, errors included
    """

    begun: float
    ended: float = 0.0
    rate: float = 0.0
    latencies: list[float] = field(default_factory=list)
    finished: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    requests: int = 0
    errors: int = 0
    first_error: str = ""
    stopped: bool = False
    processor_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.ended - self.begun

    @property
    def per_second(self) -> float:
        """Requests a second that were answered without error."""
        return (self.requests - self.errors) / self.seconds if self.seconds > 0 else 0.0

    def percentile(self, percent: float) -> float:
        """Of the latencies; infinite where there are none."""
        return percentile(sorted(self.latencies), percent) if self.latencies else float("inf")

    @property
    def is_whole(self) -> bool:
        """Whether every request was answered without error and the phase was not stopped early."""
        return bool(self.latencies) and not self.errors and not self.stopped

    def keeps(self, slo_seconds: float | None, percent: float) -> bool:
        """Whether it kept the limit without errors, to its end."""
        return self.is_whole and (slo_seconds is None or self.percentile(percent) <= slo_seconds)

    def spread(self) -> float:
        """The relative standard error of `per_second`, from the counts of five equal parts of the time."""
        if self.seconds <= 0 or len(self.finished) < 2 * _BLOCKS:
            return 1.0
        counts = [0] * _BLOCKS
        for moment in self.finished:
            counts[min(int((moment - self.begun) / self.seconds * _BLOCKS), _BLOCKS - 1)] += 1
        mean = sum(counts) / _BLOCKS
        variance = sum((count - mean) ** 2 for count in counts) / (_BLOCKS - 1)
        return float((variance / _BLOCKS) ** 0.5 / mean) if mean else 1.0

    def count(self, done: Done) -> None:
        """Count a request that ended; the caller adds its latency, because only it knows what a query is."""
        self.requests += 1
        self.late.append(done.sent - done.intended)
        if done.error:
            self.errors += 1
            self.first_error = self.first_error or done.error

    def add(self, latency: float, finished: float) -> None:
        """Add the latency of a request or query that ended without error."""
        self.latencies.append(latency)
        self.finished.append(finished)


def closed_loop(wire: Sender, *, concurrency: int, seconds: float, least: int = 1) -> LoadPhase:
    """Keep `concurrency` requests in flight for `seconds` and until `least` are done; returns when all have ended."""
    phase = begin_phase()
    until = phase.begun + seconds
    for _ in range(concurrency):
        wire.send(time.perf_counter())
    while wire.under_way:
        for done in wire.wait(0.1):
            phase.count(done)
            if not done.error:
                phase.add(done.finished - done.sent, done.finished)
            if done.finished < until or phase.requests + wire.under_way < least:
                if done.error.startswith("cannot connect"):
                    time.sleep(0.01)
                wire.send(time.perf_counter())
            phase.ended = done.finished
    return end_phase(phase)


def multi_stream(wire: Sender, *, together: int, seconds: float) -> LoadPhase:
    """Queries of `together` requests, one after another; a query's latency is that of its last request."""
    phase = begin_phase()
    while not phase.requests or time.perf_counter() - phase.begun < seconds:
        sent, failed = time.perf_counter(), False
        for _ in range(together):
            wire.send(sent)
        while wire.under_way:
            for done in wire.wait(0.1):
                phase.count(done)
                failed = failed or bool(done.error)
                phase.ended = done.finished
        if not failed:
            phase.add(phase.ended - sent, phase.ended)
    return end_phase(phase)


def poisson(
    wire: Sender,
    *,
    rate: float,
    seconds: float,
    seed: int,
    slo_seconds: float | None = None,
    percent: float = 99,
    spare: int = 0,
) -> LoadPhase:
    """Poisson arrivals, `rate` a second on average, which do not wait for responses.

    Given their count, the arrivals of a Poisson process are uniform and independent. So rate x seconds arrivals,
    rounded, are drawn uniformly: the bursts remain, but the count has no random deviation of about its square root.
    With a limit, the phase ends as soon as more requests are late than `percent` allows (or than `spare`, if that is
    more): the remaining requests cannot change the outcome.
    """
    arrivals = poisson_arrivals(rate, seconds, seed)
    allowed = max(len(arrivals) - -(-len(arrivals) * percent // 100), spare)
    phase = begin_phase()
    phase.rate = rate
    over = 0

    def take(done: Done) -> None:
        nonlocal over
        latency = done.finished - done.intended
        if not done.error:
            phase.add(latency, done.finished)
        over += bool(done.error) or (slo_seconds is not None and latency > slo_seconds)

    def is_lost() -> bool:
        if slo_seconds is None:
            return False
        stuck = wire.under_way > allowed - over and time.perf_counter() - wire.oldest > 4 * slo_seconds + 1
        return over > allowed or stuck

    open_loop(wire, arrivals, phase, take=take, is_lost=is_lost)
    phase.ended = max(phase.ended, phase.begun + (0.0 if phase.stopped else seconds))
    return end_phase(phase)


def poisson_arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """The times of rate x seconds arrivals, at least one, in order."""
    rng = random.Random(seed)  # noqa: S311
    return sorted(rng.uniform(0, seconds) for _ in range(max(round(rate * seconds), 1)))


def open_loop(
    wire: Sender,
    arrivals: Sequence[float],
    phase: LoadPhase,
    *,
    take: Callable[[Done], None],
    is_lost: Callable[[], bool],
) -> None:
    """Send a request at each arrival, whatever the server does; return when all have ended.

    take     is told each request that ended
    is_lost  whether the rest cannot change the outcome: then no more is sent
    """
    sent = 0
    while sent < len(arrivals) or wire.under_way:
        now = time.perf_counter() - phase.begun
        while sent < len(arrivals) and arrivals[sent] <= now and not phase.stopped and wire.has_room:
            wire.send(phase.begun + arrivals[sent])
            sent += 1
        pause = arrivals[sent] - (time.perf_counter() - phase.begun) if sent < len(arrivals) else 0.1
        for done in wire.wait(min(pause, 0.1) if wire.has_room else 0.1):
            phase.count(done)
            take(done)
            phase.ended = done.finished
        if not phase.stopped and is_lost():
            phase.stopped, sent = True, len(arrivals)


def begin_phase() -> LoadPhase:
    """A phase that begins now."""
    phase = LoadPhase(begun=time.perf_counter())
    phase.processor_seconds = -time.process_time()
    return phase


def end_phase(phase: LoadPhase) -> LoadPhase:
    """The phase, with the processor time that this process has used in it."""
    phase.processor_seconds += time.process_time()
    return phase
