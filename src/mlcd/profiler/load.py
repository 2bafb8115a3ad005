"""How a load test becomes a trial: wait for the server, load it, extend while imprecise, end a hang; then verify."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from mlcd.clouds.provider import JobProgress, LeaseFailed, Order, Purpose
from mlcd.clouds.serving.provider import ServerLease, ServingCloud
from mlcd.errors import Interrupted, MlcdError
from mlcd.goal import Slo
from mlcd.loadgen import LoadInput, LoadResult, Scenario, measure_load
from mlcd.loadgen.first_answer import check_answer
from mlcd.loadgen.plan import MOST_CONNECTIONS
from mlcd.memory import ran_out_of_memory
from mlcd.problem import TrialPolicy
from mlcd.space import Config
from mlcd.trial.trial import Failure, FailureKind, Load, Measurement, Trial
from mlcd.units import ZERO, Usd, latency_text, speed_text

LEAST_LOAD_SECONDS = 2.0
"""A shorter load test is meaningless: the trial is extended instead."""
WARM_UP_SHARE = 0.1
"""Share of a load test in which the generator warms the server up; its requests do not count."""
MOST_FOR_ONE_SERVER = 512
"""Requests in flight on one server."""
OVERHEAD_SECONDS = 1.0
"""Time for the generator to start and for the last requests to be answered."""
RELEASE_SHARE = 0.1
"""Share of the authorised time that is kept to give the nodes back. On a machine with time to spare that takes less
than a second; at a load of 38 on two processors up to 10% of the time was seen. For rented nodes: three minutes."""
_Z_95_PERCENT = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a load test saw: the highest rate within the limits, else the lowest that broke one."""

    rate: float
    relative_error: float
    load: Load

    def joined(self, other: "Seen") -> "Seen":
        """Two measurements of one rate: their geometric mean, with the latencies of the lower one."""
        lower = min(self, other, key=lambda seen: seen.rate)
        apart = abs(math.log(self.rate / other.rate)) / 2
        error = max(math.hypot(self.relative_error, other.relative_error) / 2, apart)
        return Seen(rate=math.sqrt(self.rate * other.rate), relative_error=error, load=lower.load)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a server did at a given rate. `fault` says why that is not good enough; "" if it is."""

    rate: float
    load: Load
    fault: str = ""


class ServerTest(Protocol):
    """How a server is loaded: once to find its rate, once more to verify it. See LoadTest for the fields."""

    @property
    def headroom(self) -> float:
        """See LoadTest."""
        ...

    @property
    def verify_seconds(self) -> float:
        """See LoadTest."""
        ...

    @property
    def seed(self) -> int:
        """See LoadTest."""
        ...

    def find(self, lease: ServerLease, config: Config, *, seconds: float, seed: int) -> Seen:
        """The highest rate within the limits. Raises LeaseFailed if the server died, MlcdError if nothing was seen."""
        ...

    def hold(self, lease: ServerLease, config: Config, *, seconds: float, seed: int, rate: float) -> Held:
        """What the server does at this rate. Raises as `find` does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTest:
    """How a server is loaded.

    inputs          of one request: one item, with all sizes known
    slo             the latency limit; the test finds the highest rate that keeps it
    headroom        the share of the measured rate that is kept free when the choice is verified
    verify_seconds  how long the verification takes; 0: no verification
    in_flight       requests that fill one server; None: by its batch and replicas
    path, body      of a server with plain HTTP: see LoadPlan
    is_foreign      not mlcd's own server: the first answer is checked
    """

    inputs: tuple[LoadInput, ...]
    scenario: Scenario
    in_flight: int | None = None
    path: str = ""
    body: str = ""
    is_foreign: bool = False
    slo: Slo | None = None
    rate: float | None = None
    headroom: float = 0.3
    verify_seconds: float = 60.0
    seed: int = 0

    def find(self, lease: ServerLease, config: Config, *, seconds: float, seed: int) -> Seen:
        """See ServerTest."""
        return _seen(self, self.run(lease, config, seconds=seconds, seed=seed, rate=None))

    def hold(self, lease: ServerLease, config: Config, *, seconds: float, seed: int, rate: float) -> Held:
        """See ServerTest."""
        result = self.run(lease, config, seconds=seconds, seed=seed, rate=rate)
        load = _load(result)
        held = rate if self.scenario is Scenario.SERVER else result.requests_per_second
        return Held(rate=held, load=load, fault=_fault(self, result, load, wanted=rate))

    def run(self, lease: ServerLease, config: Config, *, seconds: float, seed: int, rate: float | None) -> LoadResult:
        """One load test of `seconds`. Raises LeaseFailed if the server died, MlcdError if there is no result."""
        place = lease.endpoint
        wanted = (self.in_flight or _in_flight(config)) * len(place.addresses)
        in_flight = min(wanted, MOST_CONNECTIONS)
        try:
            if self.is_foreign:
                check_answer(place.address, place.model, self.inputs, path=self.path, body=self.body)
            result = measure_load(
                place.address,
                place.model,
                self.inputs,
                scenario=self.scenario,
                seconds=seconds,
                slo_seconds=self.slo.seconds if self.slo else None,
                percentile=self.slo.percentile if self.slo else 99,
                rate=rate if self.scenario is Scenario.SERVER else None,
                concurrency=in_flight,
                cpus=place.client_cpus,
                apart=not place.shares_cpus,
                seed=seed,
                further=place.further,
                path=self.path,
                body=self.body,
                processors=place.generator_processors,
                generator=place.generator,
            )
        finally:
            lease.memory_gib()
            lease.check()
        if in_flight < wanted and not result.saturated:
            few = f"it keeps at most {in_flight:,} requests in flight, and {wanted:,} would fill these servers"
            return replace(result, saturated=few)
        return result


def _in_flight(config: Config) -> int:
    """Requests in flight that keep one server busy: its batches twice."""
    return min(max(32, 2 * int(config["batch"]) * int(config["replicas"])), MOST_FOR_ONE_SERVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a verification measured.

    rate    requests/s offered, or answered where the server sets the pace
    fault   why the verification failed; "" if it passed
    billed  False where no node was obtained
    """

    rate: float
    seconds: float
    load: Load | None
    fault: str = ""
    billed: bool = True


def measure_load_trial(
    cloud: ServingCloud,
    config: Config,
    *,
    attempt: int,
    policy: TrialPolicy,
    usd_per_hour: Usd,
    test: ServerTest,
    run_id: str = "",
    cancelled: Callable[[], bool] = lambda: False,
) -> Trial:
    """One trial of `config`: the highest rate it sustains, or a Failure with its cost.

    Takes policy.seconds including start-up, plus its extension while the rate is less precise than policy.precision.
    Raises Interrupted when `cancelled`. The server is always stopped.
    """
    began = time.monotonic()
    most_seconds = policy.worst_seconds(config.nodes)
    order = Order(config=config, attempt=attempt, purpose=Purpose.TRIAL, seconds=most_seconds, run_id=run_id)
    try:
        with cloud.lease(order) as lease:
            # A slow server may also use the time of the watchdog: all of it was authorised.
            last_call = _last_call(most_seconds, LEAST_LOAD_SECONDS + OVERHEAD_SECONDS)
            startup_seconds = _until_ready(lease, last_call, cancelled)
            planned_seconds = policy.planned_seconds(config.nodes)
            left_seconds = planned_seconds - startup_seconds - OVERHEAD_SECONDS
            most_load_seconds = policy.most_measured_seconds or math.inf
            first_seconds = max(min(left_seconds, most_load_seconds), LEAST_LOAD_SECONDS)
            seed = test.seed * 100 + attempt
            seen = test.find(lease, config, seconds=first_seconds, seed=seed)
            more_seconds = policy.extended_seconds(config.nodes) - (time.monotonic() - began) - 2 * OVERHEAD_SECONDS
            more_seconds = min(more_seconds, most_load_seconds)
            unsure = _Z_95_PERCENT * seen.relative_error > policy.precision
            extended = unsure and more_seconds >= max(LEAST_LOAD_SECONDS, first_seconds / 3) and not cancelled()
            if extended:
                seen = seen.joined(test.find(lease, config, seconds=more_seconds, seed=seed + 50))
            memory_gib, gpu_memory_gib = lease.memory_gib(), lease.endpoint.gpu_memory_gib()
            network_seconds = lease.endpoint.network_seconds
            settled = lease.finish(JobProgress(time.monotonic() - began, float(seen.load.requests)))
    except LeaseFailed as failed:
        seconds = max(failed.seconds, time.monotonic() - began)  # until the nodes were given back
        return _failure(order, failed.kind, failed.message, seconds, usd_per_hour if failed.billed else ZERO)
    except _NotReady as late:
        return _failure(order, FailureKind.HANG, str(late), time.monotonic() - began, usd_per_hour)
    except Interrupted:
        raise
    except MlcdError as error:
        kind = FailureKind.OUT_OF_MEMORY if ran_out_of_memory(str(error)) else FailureKind.ERROR
        return _failure(order, kind, str(error), time.monotonic() - began, usd_per_hour)
    if cancelled():
        raise Interrupted("the load test ended with the run")
    return Measurement(
        config=config,
        attempt=attempt,
        samples_per_second=seen.rate,
        relative_error=math.hypot(seen.relative_error, cloud.noise),
        iterations=max(seen.load.requests, 1),
        startup_seconds=min(startup_seconds, settled.seconds),
        seconds=settled.seconds,
        usd=usd_per_hour.for_seconds(settled.seconds),
        extended=extended,
        load=replace(seen.load, memory_gib=memory_gib, gpu_memory_gib=gpu_memory_gib, network_seconds=network_seconds),
    )


def verify_load(
    cloud: ServingCloud,
    config: Config,
    *,
    rate: float,
    attempt: int,
    most_seconds: float,
    test: ServerTest,
    run_id: str = "",
    cancelled: Callable[[], bool] = lambda: False,
    report_progress: Callable[[float, float], None] = lambda _fraction, _seconds: None,
) -> Verified:
    """Offer `rate` for test.verify_seconds on a fresh server, and report whether it is sustained."""
    began = time.monotonic()
    order = Order(config=config, attempt=attempt, purpose=Purpose.RUN, seconds=most_seconds, run_id=run_id)
    seconds = test.verify_seconds / (1 - WARM_UP_SHARE)
    report_progress(0.0, 0.0)
    try:
        with cloud.lease(order) as lease:
            _until_ready(lease, _last_call(most_seconds, seconds), cancelled)
            report_progress(0.1, time.monotonic() - began)
            held = test.hold(lease, config, seconds=seconds, seed=test.seed * 100 + 99 + attempt, rate=rate)
            memory_gib, gpu_memory_gib = lease.memory_gib(), lease.endpoint.gpu_memory_gib()
            network_seconds = lease.endpoint.network_seconds
    except LeaseFailed as failed:
        seconds = max(failed.seconds, time.monotonic() - began)
        return Verified(rate=rate, seconds=seconds, load=None, fault=failed.message, billed=failed.billed)
    except _NotReady as late:
        return Verified(rate=rate, seconds=time.monotonic() - began, load=None, fault=str(late))
    except Interrupted:
        raise
    except MlcdError as error:
        return Verified(rate=rate, seconds=time.monotonic() - began, load=None, fault=str(error))
    load = replace(held.load, memory_gib=memory_gib, gpu_memory_gib=gpu_memory_gib, network_seconds=network_seconds)
    seconds = time.monotonic() - began
    return Verified(rate=rate if held.fault else held.rate, seconds=seconds, load=load, fault=held.fault)


def _last_call(most_seconds: float, load_seconds: float) -> float:
    """When the server must be ready, for the load and the release to fit into the authorised time."""
    return most_seconds * (1 - RELEASE_SHARE) - load_seconds - OVERHEAD_SECONDS


class _NotReady(Exception):
    """The server did not become ready in time."""


def _until_ready(lease: ServerLease, most_seconds: float, cancelled: Callable[[], bool]) -> float:
    """Seconds until the server answers. Raises _NotReady, Interrupted, LeaseFailed."""
    seconds = 0.0
    for point in lease.progress():
        seconds = point.seconds
        if cancelled():
            raise Interrupted("the load test ended with the run")
        if seconds > most_seconds:
            raise _NotReady(f"the server was not ready after {seconds:.0f} s; increase search.trial.seconds")
    return seconds


def _seen(test: LoadTest, result: LoadResult) -> Seen:
    """Rate and latencies of the highest rate that kept the limit, else of the lowest that broke it."""
    if result.requests == result.errors:
        raise MlcdError(f"no request was answered: {result.first_error or 'no reason given'}")
    searched = test.slo is not None and test.scenario is Scenario.SERVER
    broken = [step for step in result.steps if not step.kept and math.isfinite(step.p99_seconds)]
    if test.slo is not None and searched and broken and len(broken) == len(result.steps):
        # Percentiles of a step that was given up early are lower bounds, but the limit was certainly broken.
        step = min(broken, key=lambda step: step.rate)
        late = max(step.p99_seconds, test.slo.seconds * (1 + 1e-6))
        load = Load(
            p50_seconds=min(step.p50_seconds, late),
            p95_seconds=late,
            p99_seconds=late,
            requests=step.requests,
            errors=step.errors,
            generator_share=result.processor_share,
        )
        return Seen(rate=max(step.rate, 1e-9), relative_error=0.0, load=load)
    return Seen(rate=max(result.requests_per_second, 1e-9), relative_error=result.relative_error, load=_load(result))


def _load(result: LoadResult) -> Load:
    return Load(
        p50_seconds=result.p50_seconds,
        p95_seconds=result.p95_seconds,
        p99_seconds=result.p99_seconds,
        requests=result.requests,
        errors=result.errors,
        saturated=result.saturated,
        generator_share=result.processor_share,
    )


def _fault(test: LoadTest, result: LoadResult, load: Load, *, wanted: float) -> str:
    """Why a verification failed; "" if it passed."""
    if load.errors:
        return f"{load.errors:,} of {load.requests:,} requests failed: {result.first_error}"
    if test.slo is not None and not load.meets(test.slo):
        seen = {50: load.p50_seconds, 95: load.p95_seconds, 99: load.p99_seconds}[test.slo.percentile]
        limit = f"over the {latency_text(test.slo.seconds)} allowed"
        return f"p{test.slo.percentile} of {latency_text(seen)} at {speed_text(wanted)} requests/s, {limit}"
    if test.rate is not None and test.scenario is not Scenario.SERVER and result.requests_per_second < test.rate:
        return f"{result.requests_per_second:.4g} of {test.rate:.4g} requests/s answered"
    return ""


def _failure(order: Order, kind: FailureKind, message: str, seconds: float, usd_per_hour: Usd) -> Failure:
    return Failure(
        config=order.config,
        attempt=order.attempt,
        kind=kind,
        message=message,
        seconds=seconds,
        usd=usd_per_hour.for_seconds(seconds),
    )
