"""What reports show of a run besides its steps and verdict: computed by mlcd.findings when it ends, stored with it.

A new field needs a default: findings that earlier versions stored do not have it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from mlcd.goal import Goal
from mlcd.run.attempt import Attempt
from mlcd.run.spot_use import SpotUse
from mlcd.run.verdict import Naive, PlainInstance
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Load, TokenPoint
from mlcd.units import ZERO, Usd, format_seconds

Z95 = 1.96
"""Standard deviations on each side of the mean in a 95% interval."""

MOST_ALONE = 1.5
"""Requests in flight, on average, up to which a request counts as alone on the server."""

EXACT = 1e-6
"""Times that differ by a smaller fraction are shown as one value: a measured table has no noise, only rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """The 95% intervals of a plan's mean time and money, (low, high)."""

    seconds: tuple[float, float]
    usd: tuple[Usd, Usd]

    @property
    def is_exact(self) -> bool:
        """Whether both ends are shown as one value."""
        return self.seconds[1] <= self.seconds[0] * (1 + EXACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What search and run together save against a naive configuration's run alone; negative if they take more.

    breaks     the limits that the naive run alone would break: "budget", "deadline"
    intervals  of the naive run's time and money, if it is predicted and its spread is known
    """

    naive: Naive
    usd: Usd
    seconds: float
    breaks: tuple[str, ...] = ()
    intervals: Intervals | None = None

    @property
    def warning(self) -> str:
        """`would break the deadline`; empty if the naive run keeps the limits."""
        if not self.breaks:
            return ""
        return f"would {'' if self.naive.measured else 'probably '}break the {' and the '.join(self.breaks)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a search, and the training or verification after it, took. None means: not known or not limited.

    earlier           attempts that were followed by another one; they were paid and are in the totals
    run_is_predicted  True if the training has not ended: the run and the totals are then predicted
    run_failed        True if the run ended before its work was done
    cap, left         the goal's limits, and what remains of them after the total (negative: broken)
    interrupted       trials that the user interrupted; `failed` does not include them
    data_usd          the part of the money that was for bringing data to nodes, without what is only predicted
    spot              what was done on spot nodes, where the market is chosen; None where nothing was
    beside_seconds    the part of the trainings' time that is part of the search's too: it counts once in the total
    """

    trials: int
    failed: int
    search_seconds: float
    search_usd: Usd
    earlier: tuple[Attempt, ...]
    run_seconds: float | None
    run_usd: Usd | None
    run_is_predicted: bool
    run_failed: bool
    total_seconds: float
    total_usd: Usd
    cap_seconds: float | None
    cap_usd: Usd | None
    left_seconds: float | None
    left_usd: Usd | None
    savings: tuple[Saving, ...] = ()
    beside_seconds: float = 0.0
    interrupted: int = 0
    data_usd: Usd = ZERO
    spot: SpotUse | None = None

    @property
    def sunk_usd(self) -> Usd:
        """The cost of the search and the earlier attempts, which is no longer available for the run."""
        return sum((attempt.usd for attempt in self.earlier), self.search_usd)

    @property
    def sunk_seconds(self) -> float:
        """The time of the search and the earlier attempts, before the run or, beside trials, before it began."""
        return self.search_seconds + sum(attempt.seconds for attempt in self.earlier) - self.beside_seconds

    @property
    def run_cap_usd(self) -> Usd | None:
        """The budget that remained for the run."""
        return None if self.cap_usd is None else self.cap_usd - self.sunk_usd

    @property
    def run_cap_seconds(self) -> float | None:
        """The time that remained for the run until the deadline."""
        return None if self.cap_seconds is None else self.cap_seconds - self.sunk_seconds

    def over_text(self, seconds: float, usd: Usd) -> str:
        """`, over the $55.81 left`, `, later than the 7 h left` or both; "" if a training that takes this fits."""
        parts = [f"over the {max(self.run_cap_usd or ZERO, ZERO)} left"] if self.is_dear(usd) else []
        if self.is_late(seconds):
            parts.append(f"later than the {format_seconds(max(self.run_cap_seconds or 0.0, 0.0))} left")
        return f", {' and '.join(parts)}" if parts else ""

    def broken_limits(self, seconds: float, usd: Usd) -> tuple[str, ...]:
        """Which limits a training that takes this does not fit: "budget", "deadline", both or none."""
        return (*(["budget"] if self.is_dear(usd) else []), *(["deadline"] if self.is_late(seconds) else []))

    def is_dear(self, usd: Usd) -> bool:
        """Whether it costs more than the budget that remained for the run."""
        return self.run_cap_usd is not None and usd > self.run_cap_usd

    def is_late(self, seconds: float) -> bool:
        """Whether it takes longer than the time that remained for the run."""
        return self.run_cap_seconds is not None and seconds > self.run_cap_seconds


class RejectionReason(StrEnum):
    """The main reason why a configuration was not chosen."""

    OVER_BUDGET = "over-budget"
    LATE = "late"
    SLOWER = "slower"
    DEARER = "dearer"
    WORSE_KNEE = "worse-knee"
    TIED = "tied"
    PASSED_OVER = "passed-over"
    OPEN = "open"
    """It fits, and nothing was chosen."""
    FAILED = "failed"
    NOT_AFFORDABLE = "not-affordable"
    NOT_TRIED = "not-tried"
    BREAKS_SLO = "breaks-slo"
    BELOW_RATE = "below-rate"
    NOT_VERIFIED = "not-verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedConfig:
    """A configuration, or a group of untried ones, and why it was not chosen.

    subject             the configuration in words; for a group, what it consists of
    text                the reason in words
    config, trial       of a tried configuration (trial: number of its last trial); None for a group
    plan                of a measured configuration
    samples_per_second  as measured; requests per second if a model is served
    configurations      number of configurations in this entry
    instances           all instance types of a group
    usd_per_million     serving: price of a million requests
    load                serving: what its load test, or verification, measured
    """

    subject: str
    reason: RejectionReason
    text: str
    config: Config | None = None
    trial: int | None = None
    plan: Plan | None = None
    samples_per_second: float | None = None
    configurations: int = 1
    instances: tuple[str, ...] = ()
    usd_per_million: Usd | None = None
    load: Load | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """The plan of the whole training on the configuration of a measured trial."""

    trial: int
    plan: Plan


class UntriedState(StrEnum):
    """What is known of a configuration that was not tried."""

    PREDICTED = "predicted"
    OVER_LIMIT = "over-limit"
    """Predicted to take more money or time than is left."""
    REFUSED = "refused"
    """The ledger would not authorise its trial."""
    RULED_OUT = "ruled-out"
    """A failed trial, or speeds that fall with the nodes, show that it is not worth one."""
    NOT_TRIED = "not-tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Untried:
    """A configuration that was not tried, with the reason in words.

    seconds, usd  of the whole training there, as the model expects it; None if it is not asked
    samples_per_second, deviation  the speed that the model expects, and the standard deviation of its logarithm
    """

    config: Config
    state: UntriedState
    text: str
    seconds: float | None = None
    usd: Usd | None = None
    samples_per_second: float | None = None
    deviation: float | None = None

    @property
    def speed_interval(self) -> tuple[float, float] | None:
        """(low, high) of the expected speed at 95%; None if it is not known."""
        if self.samples_per_second is None or self.deviation is None:
            return None
        factor = math.exp(min(Z95 * self.deviation, 60.0))
        return self.samples_per_second / factor, self.samples_per_second * factor


def best_expected(goal: Goal, entries: Iterable[Untried]) -> Untried | None:
    """The best by the goal of those that the model predicts; one over a limit only if all are. None if none is."""

    def order(each: Untried) -> tuple[bool, float, float, Usd]:
        seconds, usd = each.seconds or 0.0, each.usd or ZERO
        return each.state is UntriedState.OVER_LIMIT, goal.value(seconds, usd.dollars), seconds, usd

    return min((e for e in entries if e.seconds is not None and e.usd is not None), key=order, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountStep:
    """The account after a trial was paid.

    reserved  the incumbent's upper bound; $0 if nothing measured fits, or if the strategy keeps no reserve
    skipped   configurations whose trials no longer fit what is free since this one, with the reason in words
    """

    trial: int
    spent: Usd
    reserved: Usd
    elapsed_seconds: float
    reserved_seconds: float
    incumbent: Plan | None
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """A training on K workers."""

    workers: int
    seconds: float
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCurve:
    """Measured and predicted points of one global batch, ordered by K. Either may be empty."""

    batch: int
    measured: tuple[BatchPoint, ...]
    predicted: tuple[BatchPoint, ...]

    @property
    def unmeasured(self) -> tuple[BatchPoint, ...]:
        """The predicted points of cluster sizes that were not measured."""
        known = {point.workers for point in self.measured}
        return tuple(point for point in self.predicted if point.workers not in known)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTradeoff:
    """Time against cost over cluster sizes K and global batches B; each point as measured, otherwise as predicted.

    front      (K, B) of the Pareto front, fastest first
    preferred  (K, B) of the choice, or of the knee if there is no choice; None if there are no points
    """

    curves: tuple[BatchCurve, ...]
    front: tuple[tuple[int, int], ...]
    preferred: tuple[int, int] | None

    @property
    def points(self) -> tuple[tuple[int, BatchPoint], ...]:
        """(B, point) of every point, the measured ones of a curve first."""
        return tuple((c.batch, point) for c in self.curves for point in (*c.measured, *c.unmeasured))


class TargetState(StrEnum):
    """What the trials show about the training's target metric."""

    UNKNOWN = "unknown"
    """It cannot be predicted when the target will be met."""
    MET = "met"
    """A trial met it."""
    ALLOWED = "allowed"
    """It is not expected within the samples that the job allows."""
    EXPECTED = "expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFindings:
    """Findings of a run whose global batch was chosen.

    instance        the instance type of the curves
    paid_by_memory  whether the run's prices follow the memory that a node's share of the batch needs
    as_paid         the curves at the run's own prices
    repriced        the same under the other price policy
    per_million     whether the curves are for a million samples, because the end of the training is unknown
    noise_scale     of the gradients in the last trials, in samples; None if the job reports none
    expected_noise_scale  the one that stands for the rest of the training; None if the job reports none
    worths          (batch, what a sample of it is worth in samples of the reference batch): smallest, largest batch
    reference       the batch at which samples are counted
    by_learning_rate_rule  whether the worths follow the job's learning-rate rule, because its noise is not known
    target          None if no target ends the training
    target_samples  total samples until the target: allowed or expected
    """

    instance: str
    paid_by_memory: bool
    as_paid: BatchTradeoff
    repriced: BatchTradeoff
    per_million: bool
    noise_scale: float | None
    worths: tuple[tuple[int, float], ...]
    reference: int
    by_learning_rate_rule: bool
    target: TargetState | None = None
    target_samples: float | None = None
    expected_noise_scale: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainFindings:
    """Findings of a training on nodes.

    choice_intervals   of the choice's predicted time and money, if they are known
    over_usd           by how much the run exceeded its budget; over_seconds: its deadline; None if it did not
    trial_plans        one for each measured trial, in order
    ranked             the plans of the measured configurations, best first in the goal's unit; among equals the cheaper
    pareto             the plans that no other beats in both time and money, fastest first
    rejected           all but the choice: the measured ones, best first; the failed; the untried by reason
    account            the account after each trial
    done_share         the share of the training that its trials did; each sample counts for what it is worth
    untried            what was known of configurations that were not tried: at most some hundred of them
    """

    receipt: Receipt
    choice_intervals: Intervals | None
    over_usd: Usd | None
    over_seconds: float | None
    trial_plans: tuple[TrialPlan, ...]
    ranked: tuple[Plan, ...]
    pareto: tuple[Plan, ...]
    rejected: tuple[RejectedConfig, ...]
    account: tuple[AccountStep, ...]
    done_share: float
    batches: BatchFindings | None = None
    untried: tuple[Untried, ...] = ()

    @property
    def measured(self) -> tuple[Plan, ...]:
        """A plan for each measured configuration, from its last measurement, in the order first measured."""
        return tuple({each.plan.config: each.plan for each in self.trial_plans}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingChoice:
    """The configuration recommended for serving, with the rate that it holds.

    requests_per_second  the promised rate: as verified, otherwise as measured
    verified_seconds     duration of the verification; None if there was none
    front                of a language model: every pace of its load test
    """

    config: Config
    requests_per_second: float
    measured_requests_per_second: float
    usd_per_million: Usd
    load: Load
    verified_seconds: float | None
    front: tuple[TokenPoint, ...] = ()

    @property
    def most_in_flight(self) -> float | None:
        """Of a language model: the requests in flight with which its load test held its rate."""
        kept = [point for point in self.front if point.kept]
        return max(kept, key=lambda point: point.output_tokens_per_second).concurrency if kept else None

    @property
    def queueing_seconds(self) -> tuple[float, float, float] | None:
        """Of a language model: p50, p95 and p99 of the time to first token, beyond the median of a request alone."""
        tokens = self.load.tokens
        alone = [point.ttft_p50 for point in self.front if 0 < point.concurrency < MOST_ALONE and point.ttft_p50 > 0]
        if tokens is None or not alone:
            return None
        p50, p95, p99 = (max(seconds - alone[0], 0.0) for seconds in tokens.ttft)
        return p50, p95, p99

    @property
    def usd_per_million_output_tokens(self) -> Usd | None:
        """Of a language model: the price of a million output tokens at the promised rate."""
        if self.load.tokens is None:
            return None
        return Usd.of(f"{self.usd_per_million.dollars / max(self.load.tokens.output_tokens, 1.0):.6f}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a simulated queue shows after the traffic of one hour follows that of another.

    hour            of the profile, from 0, whose traffic begins
    rates, replicas  before and after
    broken          limits that are broken, in words; empty: all are kept
    late_broken     the same where replicas follow the traffic instead of being started ahead of it
    wait_p99_seconds  what requests wait for a replica that takes them
    """

    hour: int
    rates: tuple[float, float]
    replicas: tuple[int, int]
    broken: tuple[str, ...] = ()
    late_broken: tuple[str, ...] = ()
    wait_p99_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPlan:
    """Replicas of the choice for traffic that changes by the hour. Computed from what was measured of one replica.

    rates           requests a second of every hour
    replicas        that serve in every hour
    start_seconds   how long a replica takes until it serves, as measured; it is started so much earlier, and paid for
    usd             of all hours; fixed_usd: with as many replicas as the busiest hour needs, all the time
    changes         the replay of the hours at which traffic or replicas change most
    follow_seconds  how late replicas are that follow the traffic: what it takes to notice it, and to start
    """

    rates: tuple[float, ...]
    replicas: tuple[int, ...]
    replica_requests_per_second: float
    start_seconds: float
    usd: Usd
    fixed_usd: Usd
    changes: tuple[Change, ...]
    follow_seconds: float

    @property
    def fixed_replicas(self) -> int:
        """As many as the busiest hour needs."""
        return max(self.replicas)

    @property
    def days(self) -> float:
        """How long the profile is."""
        return len(self.rates) / 24

    @property
    def usd_per_day(self) -> Usd:
        """With the replicas of every hour."""
        return Usd.of(f"{self.usd.dollars / self.days:.6f}")

    @property
    def fixed_usd_per_day(self) -> Usd:
        """With as many as the busiest hour needs, all the time."""
        return Usd.of(f"{self.fixed_usd.dollars / self.days:.6f}")

    @property
    def broken(self) -> tuple[Change, ...]:
        """The changes at which a limit is broken."""
        return tuple(change for change in self.changes if change.broken)

    @property
    def late_broken(self) -> tuple[Change, ...]:
        """The changes at which a limit is broken if replicas follow the traffic."""
        return tuple(change for change in self.changes if change.late_broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeFindings:
    """Findings of a serving run.

    choice        None if nothing is recommended
    rejected      all that were tried and not chosen: those that meet the goal first, best first; the failed ones last
    nearest_miss  the nearest of those that do not meet the goal; None if all meet it, or nothing was measured
    met           numbers of the trials that met the goal
    untried       how many configurations were never tried
    day           replicas of the choice by the hour; None without a profile of the traffic, or without a choice
    untried_configs  what was known of configurations that were not tried: at most some hundred of them
    """

    receipt: Receipt
    choice: ServingChoice | None
    rejected: tuple[RejectedConfig, ...]
    nearest_miss: RejectedConfig | None
    met: tuple[int, ...]
    untried: int
    day: DayPlan | None = None
    untried_configs: tuple[Untried, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionReceipt:
    """What a serverless training took.

    training_seconds  all epochs, failed ones included
    elapsed_seconds   from the first start to the last end, including decisions and downtime
    failed            the part of the totals that failed epochs took
    repeated_calls    the part of `calls` that repeated a failed function
    """

    training_seconds: float
    elapsed_seconds: float
    total_usd: Usd
    failed_seconds: float
    failed_usd: Usd
    cap_usd: Usd | None
    left_usd: Usd | None
    calls: int
    repeated_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTotal:
    """The running total of all epochs, failed ones included, after the epoch with the number `step`."""

    step: int
    seconds: float
    usd: Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessFindings:
    """Findings of a serverless training.

    totals           after each epoch
    better_instance  the plain instance that would have met the goal better: cheaper and no slower, or as cheap and
                     faster; None if there is none, or the target was not reached
    refused          (functions, memory in MB) that what is left does not pay an epoch of: at most some hundred of them
    """

    receipt: FunctionReceipt
    is_target_reached: bool
    totals: tuple[EpochTotal, ...]
    better_instance: PlainInstance | None = None
    refused: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What reports show of a run besides its steps and verdict; the part for the run's kind is set."""

    train: TrainFindings | None = None
    serve: ServeFindings | None = None
    serverless: ServerlessFindings | None = None
