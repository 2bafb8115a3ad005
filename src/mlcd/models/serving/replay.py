"""A queue in front of replicas, simulated: what requests wait when the traffic and the number of replicas change.

Each replica works as its load test measured: with n requests in flight it ends X(n) requests a second, so that each of
them advances by X(n) / n of a request a second (processor sharing). Requests arrive at random (Poisson), go to the
replica with the fewest in flight, and wait in one queue where all have as many as they may have.
"""

import heapq
import itertools
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_REPLICAS = 32
"""More are simulated as so many with the same traffic each: fewer even out worse, which errs on the safe side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Requests in flight against requests a second of one replica, as measured; both rise.

    most_in_flight  that a replica may have
    """

    in_flight: tuple[float, ...]
    requests_per_second: tuple[float, ...]
    most_in_flight: int

    def __post_init__(self) -> None:
        if not self.in_flight or len(self.in_flight) != len(self.requests_per_second) or self.most_in_flight < 1:
            raise ValueError("a curve needs a rate for each number of requests in flight")
        if any(b <= a for a, b in itertools.pairwise((0.0, *self.in_flight))) or min(self.requests_per_second) <= 0:
            raise ValueError("requests in flight must rise, and rates must be above 0")

    def rate(self, in_flight: float) -> float:
        """Requests that end a second; interpolated, and beyond the last point as there."""
        at = bisect_right(self.in_flight, in_flight)
        if at == len(self.in_flight):
            return self.requests_per_second[-1]
        below, under = (self.in_flight[at - 1], self.requests_per_second[at - 1]) if at else (0.0, 0.0)
        share = (in_flight - below) / (self.in_flight[at] - below)
        return under + share * (self.requests_per_second[at] - under)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What became of one request: how long it waited, how long it was served, and with how many beside it."""

    arrived_seconds: float
    wait_seconds: float
    service_seconds: float
    in_flight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """From `begin_seconds` on, requests arrive at this rate and so many replicas take new ones."""

    begin_seconds: float
    requests_per_second: float
    replicas: int


def replay(curve: Curve, stages: Sequence[Stage], *, end_seconds: float, seed: int) -> list[Replayed]:
    """The requests that arrived before the end, in the order in which they ended. Replicas that go finish theirs."""
    most = max(stage.replicas for stage in stages)
    if most > MOST_REPLICAS:
        factor = MOST_REPLICAS / most
        stages = [
            Stage(
                begin_seconds=stage.begin_seconds,
                replicas=max(round(stage.replicas * factor), 1),
                requests_per_second=stage.requests_per_second
                * max(round(stage.replicas * factor), 1)
                / max(stage.replicas, 1),
            )
            for stage in stages
        ]
    return _Replay(curve, stages, end_seconds, seed).run()


@dataclass(slots=True, eq=False)
class _Replica:
    is_open: bool = True
    version: int = 0
    done: float = 0.0
    """How much of a request each one in flight has advanced since the beginning."""
    at: float = 0.0
    ends: list[tuple[float, int]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Request:
    arrived: float
    begun: float = 0.0
    beside: int = 0


class _Replay:
    def __init__(self, curve: Curve, stages: Sequence[Stage], end_seconds: float, seed: int) -> None:
        self.curve, self.stages, self.end = curve, stages, end_seconds
        self.rng = random.Random(seed)  # noqa: S311
        self.replicas: list[_Replica] = []
        self.requests: list[_Request] = []
        self.queue: deque[int] = deque()
        self.agenda: list[tuple[float, int, int]] = []
        self.found: list[Replayed] = []
        # How fast each one of n in flight advances.
        self.paces = [0.0] + [curve.rate(n) / n for n in range(1, curve.most_in_flight + 1)]

    def run(self) -> list[Replayed]:
        arrivals = self._arrivals()
        changes = list(self.stages)
        at = 0
        while at < len(arrivals) or self.agenda or changes:
            moments = [
                changes[0].begin_seconds if changes else float("inf"),
                arrivals[at] if at < len(arrivals) else float("inf"),
                self.agenda[0][0] if self.agenda else float("inf"),
            ]
            now = min(moments)
            if moments[0] == now:
                self._resize(changes.pop(0).replicas, now)
            elif moments[2] == now:
                _, which, version = heapq.heappop(self.agenda)
                if self.replicas[which].version == version:
                    self._finish(which, now)
            else:
                self.requests.append(_Request(arrived=now))
                self.queue.append(len(self.requests) - 1)
                at += 1
            self._dispatch(now)
            if not self.agenda and at >= len(arrivals) and not changes:
                break
        return self.found

    def _arrivals(self) -> list[float]:
        found = []
        ends = [*(stage.begin_seconds for stage in self.stages[1:]), self.end]
        for stage, end in zip(self.stages, ends, strict=True):
            now = stage.begin_seconds
            while stage.requests_per_second > 0:
                now += self.rng.expovariate(stage.requests_per_second)
                if now >= end:
                    break
                found.append(now)
        return found

    def _resize(self, replicas: int, now: float) -> None:
        opened = [each for each in self.replicas if each.is_open]
        for each in opened[replicas:]:
            each.is_open = False
        for each in [each for each in self.replicas if not each.is_open][: max(replicas - len(opened), 0)]:
            each.is_open = True
            opened.append(each)
        self.replicas += [_Replica(at=now) for _ in range(replicas - len(opened))]

    def _dispatch(self, now: float) -> None:
        while self.queue:
            free = [at for at, each in enumerate(self.replicas) if each.is_open]
            if not free:
                return
            which = min(free, key=lambda at: len(self.replicas[at].ends))
            replica = self.replicas[which]
            if len(replica.ends) >= self.curve.most_in_flight:
                return
            number = self.queue.popleft()
            self._advance(replica, now)
            heapq.heappush(replica.ends, (replica.done + 1.0, number))
            request = self.requests[number]
            request.begun, request.beside = now, len(replica.ends)
            self._plan(which, now)

    def _advance(self, replica: _Replica, now: float) -> None:
        if replica.ends:
            replica.done += (now - replica.at) * self.paces[len(replica.ends)]
        replica.at = now

    def _plan(self, which: int, now: float) -> None:
        replica = self.replicas[which]
        replica.version += 1
        if replica.ends:
            left = max(replica.ends[0][0] - replica.done, 0.0)
            heapq.heappush(self.agenda, (now + left / self.paces[len(replica.ends)], which, replica.version))

    def _finish(self, which: int, now: float) -> None:
        replica = self.replicas[which]
        self._advance(replica, now)
        beside = len(replica.ends)
        _, number = heapq.heappop(replica.ends)
        request = self.requests[number]
        self.found.append(
            Replayed(
                arrived_seconds=request.arrived,
                wait_seconds=request.begun - request.arrived,
                service_seconds=now - request.begun,
                in_flight=(request.beside + beside) / 2,
            )
        )
        self._plan(which, now)
