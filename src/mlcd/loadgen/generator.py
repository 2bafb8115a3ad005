"""One load test from its plan to its result."""

import math
import time
from dataclasses import dataclass, field

from mlcd.loadgen.phases import LoadPhase, closed_loop, multi_stream, poisson
from mlcd.loadgen.plan import LoadPlan, Scenario
from mlcd.loadgen.result import LoadResult, LoadStep
from mlcd.loadgen.wire import Wire, bodies, plain_request, server_place

_WARM_UP_REQUESTS = 8
_WARM_UP_SHARE = 0.1
_CLIMB_SHARE = 0.15
_CONFIRM_SHARE = 0.45
"""Shares of the plan's seconds."""
_MAX_CONFIRMATIONS = 8
_BISECTION_RATIO = 1.04
"""Bisection ends when the lowest rate that broke the limit is less than this many times the highest that kept it."""
_SATURATED_SHARE = 0.85
"""Of one processor: a generator that used more may have set the result."""
_MIN_CAPACITY = 1e-9


def generate(plan: LoadPlan) -> LoadResult:
    """Run the load test in this process. Raises BadInput for a malformed address."""
    (host, port), *further = (server_place(address) for address in (plan.address, *plan.further))
    timeout_seconds = max(10.0, 20 * (plan.slo_seconds or 0))
    requests = plan_requests(plan)
    wire = Wire(host, port, requests, timeout_seconds=timeout_seconds, further=further)
    begun = time.perf_counter()
    try:
        warm_up = closed_loop(
            wire, concurrency=min(plan.concurrency, 4), seconds=_WARM_UP_SHARE * plan.seconds, least=_WARM_UP_REQUESTS
        )
        if warm_up.errors == warm_up.requests:  # more would only wait for more time-outs
            return _result(plan, warm_up, begun, error=warm_up.spread())
        if plan.scenario is Scenario.SERVER and plan.rate is None:
            return _search(plan, wire, begun)
        phase = _one_phase(plan, wire, plan.seconds - (time.perf_counter() - begun))
        return _result(plan, phase, begun, error=phase.spread())
    finally:
        wire.close()


def plan_requests(plan: LoadPlan) -> list[bytes]:
    """The requests of a load test, ready for the wire."""
    host = plan.address.partition("//")[2]
    if plan.path:
        return [plain_request(host, plan.path, plan.body)]
    return bodies(host, plan.model, plan.inputs, seed=plan.seed)


def _one_phase(plan: LoadPlan, wire: Wire, seconds: float) -> LoadPhase:
    seconds = max(seconds, 0.1)
    if plan.scenario is Scenario.SINGLE_STREAM:
        return closed_loop(wire, concurrency=1, seconds=seconds)
    if plan.scenario is Scenario.MULTI_STREAM:
        return multi_stream(wire, together=plan.together, seconds=seconds)
    if plan.scenario is Scenario.OFFLINE:
        return closed_loop(wire, concurrency=plan.concurrency, seconds=seconds)
    assert plan.rate is not None  # noqa: S101
    return poisson(wire, rate=plan.rate, seconds=seconds, seed=plan.seed)


def _search(plan: LoadPlan, wire: Wire, begun: float) -> LoadResult:
    """The highest rate of Poisson arrivals that keeps the limit, within the plan's time.

    1. Climb: closed loops of 1, 2, 4, ... requests measure the capacity, which no rate can exceed for long.
    2. Bisect, in the logarithm of the rate, between rates that kept the limit and rates that broke it. A rate that
       fails ends early.
    3. Confirm the highest rate that kept it, for longer and with other arrivals, and lower it where that fails: the
       highest of several noisy successes is likely to have been lucky.
    """
    assert plan.slo_seconds is not None  # noqa: S101
    until = begun + plan.seconds
    capacity, alone = _climb(plan, wire)
    if alone.percentile(50) > plan.slo_seconds or alone.errors == alone.requests:
        return _result(plan, alone, begun, error=alone.spread())
    search = _Search(plan=plan, wire=wire)
    step_seconds = max((until - time.perf_counter() - _CONFIRM_SHARE * plan.seconds) / 6, 0.3)
    rate = 0.7 * capacity
    while time.perf_counter() + step_seconds < until - _CONFIRM_SHARE * plan.seconds or not search.steps:
        search.run(rate, step_seconds, spare=1)
        if search.kept and search.broken / search.kept < _BISECTION_RATIO:
            break
        rate = search.next_rate()
    rate = search.kept or rate
    for _ in range(_MAX_CONFIRMATIONS):
        if (remaining := until - time.perf_counter()) < 0.3 or search.run(rate, remaining):
            break
        rate = 0.93 * rate
    return search.result(begun)


@dataclass(kw_only=True)
class _Search:
    """The highest rate so far that `kept` the limit, and above it the lowest that did not (`broken`)."""

    plan: LoadPlan
    wire: Wire
    steps: list[LoadPhase] = field(default_factory=list)
    kept: float = 0.0
    broken: float = math.inf

    def run(self, rate: float, seconds: float, *, spare: int = 0) -> bool:
        """Whether this rate kept the limit; `spare` requests may be late however few there are.

        The bisection's steps are short. Without a spare request, one late request of a few dozen would decide them.
        """
        plan, seed = self.plan, self.plan.seed * 1000 + len(self.steps)
        slo, percent = plan.slo_seconds, plan.percentile
        step = poisson(self.wire, rate=rate, seconds=seconds, seed=seed, slo_seconds=slo, percent=percent, spare=spare)
        self.steps.append(step)
        if step.is_whole:
            self.kept = max(self.kept, rate)
            return True
        self.broken = min(self.broken, rate)
        if self.kept >= self.broken:  # the longer or later test counts
            lower = (each.rate for each in self.steps if each.rate < self.broken and each.is_whole)
            self.kept = max(lower, default=0.0)
        return False

    def next_rate(self) -> float:
        """25% up until a rate breaks the limit, 40% down until one keeps it, then the geometric mean of the two."""
        if self.broken == math.inf:
            return 1.25 * self.kept
        return math.sqrt(self.kept * self.broken) if self.kept else 0.6 * self.broken

    def result(self, begun: float) -> LoadResult:
        """The result of the highest rate whose percentile kept the limit; where none did, of the lowest rate."""
        slo, percent = self.plan.slo_seconds, self.plan.percentile
        found = [step for step in self.steps if step.rate <= self.kept and step.keeps(slo, percent)]
        chosen = max(found, key=lambda s: (s.rate, s.seconds)) if found else min(self.steps, key=lambda s: s.rate)
        open_interval = math.log(self.broken / chosen.rate) / 2 if found and self.broken < math.inf else 0.1
        return _result(self.plan, chosen, begun, error=max(open_interval, 0.02), steps=self.steps)


def _climb(plan: LoadPlan, wire: Wire) -> tuple[float, LoadPhase]:
    """(the highest throughput of closed loops with growing concurrency, the phase with one request at a time)."""
    seconds = _CLIMB_SHARE * plan.seconds / (math.log2(plan.concurrency) + 2)
    alone = closed_loop(wire, concurrency=1, seconds=2 * seconds, least=5)
    capacity, concurrency = alone.per_second, 2
    while concurrency <= plan.concurrency:
        phase = closed_loop(wire, concurrency=concurrency, seconds=seconds, least=2 * concurrency)
        grown = phase.per_second > 1.05 * capacity
        capacity = max(capacity, phase.per_second)
        too_slow = plan.slo_seconds is not None and phase.percentile(50) > plan.slo_seconds
        if too_slow or (not grown and concurrency >= min(plan.concurrency, 8)):
            break
        concurrency *= 2
    return max(capacity, _MIN_CAPACITY), alone


def _result(
    plan: LoadPlan, phase: LoadPhase, begun: float, *, error: float, steps: list[LoadPhase] | None = None
) -> LoadResult:
    return LoadResult(
        scenario=plan.scenario.value,
        requests_per_second=phase.per_second,
        offered_per_second=phase.rate or None,
        kept=phase.keeps(plan.slo_seconds, plan.percentile),
        requests=phase.requests,
        errors=phase.errors,
        p50_seconds=phase.percentile(50),
        p95_seconds=phase.percentile(95),
        p99_seconds=phase.percentile(99),
        seconds=phase.seconds,
        total_seconds=time.perf_counter() - begun,
        relative_error=error,
        processor_share=phase.processor_seconds / phase.seconds if phase.seconds > 0 else 0.0,
        saturated=_saturation(phase, plan.slo_seconds, plan.processors),
        first_error=phase.first_error,
        steps=tuple(_as_step(step) for step in steps or ()),
    )


def _as_step(phase: LoadPhase) -> LoadStep:
    return LoadStep(
        rate=phase.rate,
        seconds=phase.seconds,
        requests=phase.requests,
        errors=phase.errors,
        p50_seconds=phase.percentile(50),
        p99_seconds=phase.percentile(99),
        kept=phase.is_whole,
        stopped=phase.stopped,
    )


def _saturation(phase: LoadPhase, slo_seconds: float | None, processors: float = 1.0) -> str:
    """Why the generator may have limited the result: it was busy nearly all the time, or sent requests too late."""
    share = phase.processor_seconds / phase.seconds if phase.seconds > 0 else 0.0
    if share > _SATURATED_SHARE * processors:
        return f"the load generator used {share:.0%} of a processor"
    if phase.rate and phase.late and not phase.stopped:
        late = sorted(phase.late)[math.ceil(0.99 * len(phase.late)) - 1]
        if late > max(0.002, 0.1 * (slo_seconds or 0)):
            return f"the load generator sent 1 in 100 requests {late * 1000:.1f} ms late or more"
    return ""
