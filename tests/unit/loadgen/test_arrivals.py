"""What the load generator counts, on a clock and a server that are made up: to the microsecond, in no time."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from mlcd.loadgen import LoadInput, LoadPlan, LoadResult
from mlcd.loadgen import generator as search
from mlcd.loadgen import phases as patterns
from mlcd.loadgen.phases import LoadPhase, poisson
from mlcd.loadgen.wire import Done, Wire

X = (LoadInput(name="x", datatype="FP32", shape=(1, 4)),)


@dataclass
class Clock:
    """Stands for the module `time`: it goes on when somebody waits."""

    now: float = 100.0

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class MadeUpWire:
    """A server that answers one request at a time, after `seconds(now)`, and a generator that stalls for a while.

    stalls  (when, until): nothing is sent or read in between, as where the generator gets no processor
    """

    clock: Clock
    seconds: Callable[[float], float]
    stalls: tuple[float, float] = (math.inf, math.inf)
    error: str = ""
    waiting: list[Done] = field(default_factory=list)
    free_at: float = 0.0
    has_room: bool = True

    @property
    def under_way(self) -> int:
        return len(self.waiting)

    @property
    def oldest(self) -> float:
        return min((done.sent for done in self.waiting), default=self.clock.now)

    def send(self, intended: float) -> None:
        now = self.clock.now
        self.free_at = max(self.free_at, now) + self.seconds(now)
        self.waiting.append(Done(intended=intended, sent=now, finished=self.free_at, tag=0, error=self.error))

    def wait(self, seconds: float) -> list[Done]:
        until = min([self.clock.now + max(seconds, 1e-6), *(done.finished for done in self.waiting)])
        begins, ends = self.stalls
        self.clock.now = max(self.clock.now, ends if self.clock.now < begins <= until else until)
        done = [each for each in self.waiting if each.finished <= self.clock.now]
        self.waiting = [each for each in self.waiting if each.finished > self.clock.now]
        return done


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(patterns, "time", made)
    monkeypatch.setattr(search, "time", made)
    return made


def as_wire(wire: MadeUpWire) -> Wire:
    return wire  # type: ignore[return-value]  # it has what the patterns use


def test_a_request_that_is_sent_late_is_as_slow_as_its_client_finds_it(clock: Clock) -> None:
    """The generator stalls for 2 s: requests that were due meanwhile are sent late, and each answered in 1 ms."""
    wire = MadeUpWire(clock, lambda _now: 0.001, stalls=(clock.now + 1, clock.now + 3))
    phase = poisson(as_wire(wire), rate=10, seconds=10, seed=3)
    assert phase.requests == 100
    assert 1.5 < max(phase.late) < 2.0
    assert max(phase.latencies) >= max(phase.late)
    assert sum(latency > 0.5 for latency in phase.latencies) == pytest.approx(15, abs=8), (
        "1.5 s of the 2, at 10 a second"
    )


def test_failed_requests_are_late_ones(clock: Clock) -> None:
    wire = MadeUpWire(clock, lambda _now: 0.001, error="status 500")
    phase = poisson(as_wire(wire), rate=10, seconds=10, seed=3, slo_seconds=1.0)
    assert phase.stopped
    assert phase.requests < 10, "after the second failure of a hundred requests the limit cannot be kept"


def test_throughput_is_of_requests_that_were_answered() -> None:
    phase = LoadPhase(begun=0.0, ended=2.0, requests=10, errors=4)
    assert phase.per_second == 3.0


@pytest.mark.parametrize(("errors", "stopped", "keeps"), [(0, False, True), (1, False, False), (0, True, False)])
def test_a_phase_with_errors_or_that_was_stopped_keeps_no_limit(errors: int, stopped: bool, keeps: bool) -> None:
    phase = LoadPhase(begun=0.0, ended=1.0, latencies=[0.1], requests=1, errors=errors, stopped=stopped)
    assert phase.keeps(1.0, 99) is keeps


PLAN = LoadPlan(address="http://h:1", model="m", inputs=X, slo_seconds=0.2, seconds=60.0, concurrency=8)


def found(clock: Clock, seconds: Callable[[float], float]) -> LoadResult:
    return search._search(PLAN, as_wire(MadeUpWire(clock, seconds)), clock.now)


def test_the_found_rate_is_near_the_capacity(clock: Clock) -> None:
    result = found(clock, lambda _now: 0.01)
    assert result.kept
    assert 70 < result.requests_per_second < 100


def test_a_rate_that_the_server_does_not_hold_is_lowered_until_it_does(clock: Clock) -> None:
    """A server of 100 requests a second slows down to 75 when the rate has been found, before it is confirmed."""
    slower = clock.now + 0.55 * PLAN.seconds
    result = found(clock, lambda now: 1 / 100 if now < slower else 1 / 75)
    assert result.kept
    assert 40 < result.requests_per_second < 75
    assert max(step.rate for step in result.steps) > 80, "that rate was held at first"
    assert result.offered_per_second == pytest.approx(result.requests_per_second, rel=0.05)


def test_every_step_has_arrivals_of_its_own(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def recorded(wire: Wire, *, rate: float, seconds: float, seed: int, **more: float) -> LoadPhase:
        seeds.append(seed)
        return poisson(wire, rate=rate, seconds=seconds, seed=seed, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "poisson", recorded)
    found(clock, lambda _now: 0.01)
    assert len(seeds) > 3
    assert len(set(seeds)) == len(seeds)


def step(rate: float, latency: float, *, stopped: bool = False) -> LoadPhase:
    return LoadPhase(begun=0.0, ended=1.0, rate=rate, latencies=[0.1] * 9 + [latency], requests=10, stopped=stopped)


def test_the_result_is_of_a_rate_whose_percentile_kept_the_limit(clock: Clock) -> None:
    steps = [step(10.0, 0.1), step(20.0, 0.3), step(30.0, 0.3, stopped=True)]
    made = search._Search(plan=PLAN, wire=as_wire(MadeUpWire(clock, lambda _now: 0.0)), steps=steps, kept=20.0)
    assert made.result(clock.now).offered_per_second == 10.0
