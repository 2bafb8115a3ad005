"""Suggestion, Measurement, Failure, and the History of them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from mlcd.goal import Goal, Slo
from mlcd.loadgen.chat.plan import ChatLimit
from mlcd.space import Config
from mlcd.space.placed import place_of
from mlcd.transformer import Transformer
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.units import Usd

RECENT_NOISE_TRIALS = 3
"""How many of the last trials give the noise scale: a single one is too uncertain, and old ones are outdated."""


class FailureKind(StrEnum):
    """What went wrong with a trial. A failure is an outcome too: it was paid for and the search learns from it."""

    OUT_OF_MEMORY = "out-of-memory"
    CAPACITY = "no-capacity"
    REFUSED = "refused"
    """The cloud or region gives this account no nodes at all: credentials, access. Others may."""
    LAUNCH = "launch-failed"
    INTERRUPTED = "spot-interrupted"
    HANG = "hang"
    ERROR = "job-failed"
    LOST = "lost"
    OVERRAN = "overran"
    """The cloud did not end it within its authorised time; what it took is charged in full."""
    STOPPED = "interrupted"
    """The user interrupted the run; it is repeated when the run is resumed."""
    CANCELLED = "cancelled"
    """The training beside it ended first."""

    @property
    def is_transient(self) -> bool:
        """Whether the same trial is likely to succeed when it is repeated."""
        return self in (FailureKind.LAUNCH, FailureKind.INTERRUPTED, FailureKind.LOST, FailureKind.STOPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a strategy's model expects a trial to measure: the median speed, and the deviation of its logarithm."""

    samples_per_second: float
    deviation: float

    def __post_init__(self) -> None:
        if not 0 < self.samples_per_second < math.inf or not 0 <= self.deviation < math.inf:
            raise ValueError("an expected speed must be positive and finite, its deviation not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A configuration worth a trial, with the reason in words for the user.

    expected  what the strategy expects of it; None if it has no model, or no trial to base one on
    chance    the probability that the work fits the limits there; None where the strategy has none, or tells it itself
    """

    config: Config
    reason: str
    expected: Expectation | None = None
    chance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPoint:
    """What a language model's server did with so many requests in flight. Latencies are in seconds.

    What earlier versions did not store is 0.
    """

    concurrency: float
    output_tokens_per_second: float
    ttft_p95: float
    tpot_p95: float
    kept: bool
    requests_per_second: float = 0.0
    good_per_second: float = 0.0
    ttft_p50: float = 0.0
    ttft_p99: float = 0.0
    tpot_p50: float = 0.0
    tpot_p99: float = 0.0
    e2e_p50: float = 0.0
    e2e_p95: float = 0.0
    e2e_p99: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLoad:
    """What a load test measured of a language model's answers.

    concurrency  requests in flight on average
    ttft, tpot, e2e  p50, p95 and p99 in seconds (mlcd.loadgen.chat.ChatMetric)
    input_tokens, output_tokens  means of one request
    front        all paces that were tried, in order
    gaps         p50, p95 and p99 of the times between two pieces of an answer, in seconds
    counted      how tokens were counted, in words; "" in runs of earlier versions
    """

    concurrency: float
    requests_per_second: float
    good_per_second: float
    input_tokens_per_second: float
    output_tokens_per_second: float
    input_tokens: float
    output_tokens: float
    ttft: tuple[float, float, float]
    tpot: tuple[float, float, float]
    e2e: tuple[float, float, float]
    front: tuple[TokenPoint, ...] = ()
    gaps: tuple[float, float, float] | None = None
    counted: str = ""

    def seen(self, limit: ChatLimit) -> float:
        """The percentile that the limit is on, in seconds."""
        found: tuple[float, float, float] = getattr(self, str(limit.metric))
        return found[(50, 95, 99).index(limit.percentile)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a load test measured of a server, in addition to the rate that it held.

    memory_gib  the server's peak memory; None if it is not known
    errors      requests that were answered with an error, or not at all
    saturated   why the load generator, not the server, may have limited the rate; "" if it did not
    tokens      of a language model's answers; None for other models
    generator_share  of one processor, used by the load generator itself; None if it was not measured
    gpu_memory_gib  what the server took of its GPU's memory when the test ended; None without one, or where unknown
    network_seconds  from the load generator to the server and back, which is part of every latency; None: the server
                     was on this machine or its network, or it was not measured
    """

    p50_seconds: float
    p95_seconds: float
    p99_seconds: float
    requests: int
    errors: int = 0
    memory_gib: float | None = None
    saturated: str = ""
    tokens: TokenLoad | None = None
    generator_share: float | None = None
    gpu_memory_gib: float | None = None
    network_seconds: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.p50_seconds <= self.p95_seconds <= self.p99_seconds < math.inf:
            raise ValueError("latencies must be positive and must not fall with their percentile")
        if self.requests < 1 or not 0 <= self.errors <= self.requests:
            raise ValueError("a load test needs at least one request, and no more errors than requests")

    def percentile(self, percentile: int) -> float:
        """The latency at 50, 95 or 99%, in seconds."""
        return {50: self.p50_seconds, 95: self.p95_seconds, 99: self.p99_seconds}[percentile]

    def meets(self, slo: Slo) -> bool:
        """Whether the latency limit was kept, without errors."""
        return self.errors == 0 and self.percentile(slo.percentile) <= slo.seconds

    def keeps(self, limit: ChatLimit) -> bool:
        """Whether a limit on the answers of a language model was kept, without errors."""
        return self.errors == 0 and self.tokens is not None and self.tokens.seen(limit) <= limit.seconds


@dataclass(frozen=True, slots=True)
class Learned:
    """How good the model was after `samples` of the whole training."""

    samples: float
    metric: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A finished trial: the speed it measured and what it took.

    relative_error  standard error of log speed, spread within the trial and between runs together
    startup_seconds from the order to the first sample: part of `seconds`, and needed again by the final run
    reached_samples progress of the whole training in the trial's checkpoint; 0 if it saved none
    utilisation     share of the nodes' processors that was used; None if the cloud cannot tell
    total_samples   the work of the whole training, if the job reports it
    load            what a load test measured; samples are then requests
    noise_scale     the noise of the job's gradients, in samples, if the job reports it
    learned         how good the model was during the trial, if the job has a target
    node_metrics    what the cloud's own monitoring measured, if it has any
    is_finished     whether its job did all of the work and left the outputs: no training is needed
    transformer     the sizes of the trained model, if the job reports them
    """

    config: Config
    attempt: int
    samples_per_second: float
    relative_error: float
    iterations: int
    startup_seconds: float
    seconds: float
    usd: Usd
    extended: bool = False
    reached_samples: float = 0.0
    utilisation: float | None = None
    total_samples: float | None = None
    load: Load | None = None
    noise_scale: float | None = None
    learned: tuple[Learned, ...] = ()
    node_metrics: NodeMetrics | None = None
    is_finished: bool = False
    transformer: Transformer | None = None

    def __post_init__(self) -> None:
        _check_charges(self.attempt, self.seconds, self.usd)
        if not (self.samples_per_second > 0 and math.isfinite(self.samples_per_second)):
            raise ValueError("a measured speed must be positive and finite")
        if not (self.relative_error >= 0 and math.isfinite(self.relative_error)):
            raise ValueError("a relative error must not be negative")
        if self.startup_seconds < 0 or self.startup_seconds > self.seconds:
            raise ValueError("start-up must be within the trial")
        if self.iterations < 1:
            raise ValueError("a measurement needs at least one iteration")
        if self.noise_scale is not None and not self.noise_scale >= 0:
            raise ValueError("a noise scale must not be negative")

    def meets(self, goal: Goal) -> bool:
        """Whether it kept the goal's latency limit and held its rate; always true for a training."""
        held = goal.rate is None or self.samples_per_second >= goal.rate
        if goal.slo is not None and (self.load is None or not self.load.meets(goal.slo)):
            return False
        return held and all(self.load is not None and self.load.keeps(limit) for limit in goal.token_limits)

    def speed_interval(self, z: float = 1.96) -> tuple[float, float]:
        """(low, high) samples/s; 95% by default."""
        factor = math.exp(z * self.relative_error)
        return self.samples_per_second / factor, self.samples_per_second * factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A trial that measured no speed, with what it cost."""

    config: Config
    attempt: int
    kind: FailureKind
    message: str
    seconds: float
    usd: Usd
    reached_samples: float = 0.0

    def __post_init__(self) -> None:
        _check_charges(self.attempt, self.seconds, self.usd)


Trial = Measurement | Failure


def _check_charges(attempt: int, seconds: float, usd: Usd) -> None:
    if attempt < 1:
        raise ValueError("attempts count from 1")
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise ValueError("the time of a trial must be finite and not negative")
    if usd.micros < 0:
        raise ValueError("a trial cannot cost less than $0")


@dataclass(frozen=True)
class History:
    """The trials so far, in order. Append-only: `with_trials` gives a new one."""

    trials: tuple[Trial, ...] = ()

    def __len__(self) -> int:
        return len(self.trials)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    def with_trials(self, *trials: Trial) -> "History":
        """This history with these trials appended."""
        return History((*self.trials, *trials))

    def with_startup(self, least_seconds: float) -> "History":
        """The same trials, none with a shorter start-up than this: a training that moves needs as long."""
        if all(trial.startup_seconds >= least_seconds for trial in self.measured):
            return self
        return History(
            tuple(
                replace(trial, startup_seconds=least_seconds, seconds=max(trial.seconds, least_seconds))
                if isinstance(trial, Measurement) and trial.startup_seconds < least_seconds
                else trial
                for trial in self
            )
        )

    @cached_property
    def measured(self) -> tuple[Measurement, ...]:
        """The trials that measured a speed."""
        return tuple(t for t in self.trials if isinstance(t, Measurement))

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """The trials that failed."""
        return tuple(t for t in self.trials if isinstance(t, Failure))

    @cached_property
    def reached_samples(self) -> float:
        """Progress of the whole training in the furthest checkpoint that a trial saved."""
        return max((t.reached_samples for t in self.trials), default=0.0)

    @cached_property
    def total_samples(self) -> float | None:
        """The work of the whole training as reported by the job; None if it was not."""
        return max((t.total_samples for t in self.measured if t.total_samples), default=None)

    @cached_property
    def transformer(self) -> Transformer | None:
        """The sizes of the trained model as a trial's job reported them first; None if none did."""
        return next((trial.transformer for trial in self.measured if trial.transformer is not None), None)

    @cached_property
    def noise_scale(self) -> float | None:
        """The job's current noise scale: the geometric mean over the last trials that measured it, because it grows."""
        seen = [t.noise_scale for t in self.measured if t.noise_scale is not None and 0 < t.noise_scale < math.inf]
        last = seen[-RECENT_NOISE_TRIALS:]
        return math.exp(sum(map(math.log, last)) / len(last)) if last else None

    @cached_property
    def refused_places(self) -> frozenset[str]:
        """The places that gave no nodes at all; "" is the one place of a job with one cloud."""
        return frozenset(place_of(t.config.instance) for t in self.failures if t.kind is FailureKind.REFUSED)

    @cached_property
    def tried(self) -> frozenset[Config]:
        """Every configuration that had a trial; strategies do not suggest these again."""
        return frozenset(t.config for t in self.trials)

    def to_retry(self, retries: int) -> tuple[Suggestion, ...]:
        """The trials whose last attempt failed for a transient reason, if `retries` allows another attempt."""
        last = {trial.config: trial for trial in self.trials}
        return tuple(
            Suggestion(config=config, reason=f"again, after: {trial.message or trial.kind}")
            for config, trial in last.items()
            if isinstance(trial, Failure) and trial.kind.is_transient and self._failed_attempts(trial) <= retries
        )

    def _failed_attempts(self, last: Failure) -> int:
        """Attempts up to this one, without those that the user interrupted: they did not fail."""
        stopped = (t for t in self.failures if t.config == last.config and t.kind is FailureKind.STOPPED)
        return last.attempt - sum(1 for _ in stopped)

    def attempts(self, config: Config) -> int:
        """The number of trials of `config`."""
        return sum(t.config == config for t in self.trials)
