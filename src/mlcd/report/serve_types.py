"""The JSON result of `mlcd serve`, key by key."""

from dataclasses import dataclass
from typing import Annotated, Literal

from mlcd.report.result_types import (
    LEFT_OUT,
    Among,
    Amount,
    Count,
    LeftOut,
    Money,
    Number,
    Objectives,
    Seconds,
    Share,
)
from mlcd.run.findings import RejectionReason as R
from mlcd.space import Config
from mlcd.trial.outcome import Status
from mlcd.trial.trial import FailureKind

Knobs = Annotated[Config, "a value for every knob: batch, threads, replicas, precision"]
Reason = Annotated[R, Among(R.BREAKS_SLO, R.BELOW_RATE, R.NOT_VERIFIED, R.DEARER, R.SLOWER, R.TIED, R.FAILED)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServePaceJson:
    """What a language model's server did with so many requests in flight."""

    concurrency: Annotated[Amount, "requests in flight, on average"]
    output_tokens_per_second: Amount
    requests_per_second: Annotated[Amount, "that ended within the time; 0 in runs of earlier versions"]
    good_per_second: Annotated[Amount, "of them, those that kept every limit by themselves"]
    ttft_p95_seconds: Annotated[Seconds, "time to first token"]
    tpot_p95_seconds: Annotated[Seconds, "time per output token"]
    e2e_p95_seconds: Annotated[Seconds, "the whole request; 0 in runs of earlier versions"]
    kept: Annotated[bool, "whether every limit was kept"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeTokensJson:
    """What a load test measured of a language model's answers: p50, p95 and p99 of each time."""

    concurrency: Annotated[Amount, "requests in flight, on average"]
    requests_per_second: Annotated[Amount, "that ended within the time"]
    good_per_second: Annotated[Amount, "requests a second that kept every limit by themselves: goodput"]
    input_tokens_per_second: Amount
    output_tokens_per_second: Amount
    input_tokens: Annotated[Amount, "of a prompt, on average"]
    output_tokens: Annotated[Amount, "of an answer, on average"]
    ttft_seconds: Annotated[tuple[Seconds, ...], "time to first token"]
    tpot_seconds: Annotated[tuple[Seconds, ...], "time per output token after the first"]
    e2e_seconds: Annotated[tuple[Seconds, ...], "the whole request"]
    gaps_seconds: Annotated[tuple[Seconds, ...] | None, "between two pieces of an answer; null in older runs"]
    counted: Annotated[str, "how tokens were counted, in words"]
    front: Annotated[tuple[ServePaceJson, ...], "every pace that was tried, in order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLimitJson:
    """A limit on a language model's answers."""

    metric: Annotated[str, "ttft, tpot or e2e"]
    percentile: Annotated[int, "50, 95 or 99"]
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLoadJson:
    """What a load test measured."""

    p50_seconds: Annotated[Seconds, "median latency"]
    p95_seconds: Seconds
    p99_seconds: Seconds
    requests: Annotated[Count, "sent and completed"]
    errors: Annotated[Count, "of them"]
    memory_gib: Annotated[Amount | None, "peak of the server"]
    saturated: Annotated[str, "why the load generator may have limited the rate; empty if it did not"]
    tokens: Annotated[ServeTokensJson | None, "of a language model; null for others"]
    generator_share: Annotated[Amount | None, "of one processor, used by the load generator; null if not measured"]
    gpu_memory_gib: Annotated[Amount | None, "of the server when the test ended; null without a GPU of this machine"]
    network_seconds: Annotated[Seconds | None, "to a rented node and back, part of every latency; null: not rented"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRejectedJson:
    """A configuration that was tried and rejected."""

    config: Knobs
    kind: Reason
    text: Annotated[str, "the reason in words"]
    requests_per_second: Annotated[Amount | None, "measured"]
    usd_per_million_requests: Annotated[Money | None, "at the share of its rate that is promised of the choice"]
    load: ServeLoadJson | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeGoalJson:
    """What was asked."""

    text: Annotated[str, "in words"]
    minimize: Objectives
    slo_percentile: Annotated[int | None, "50, 95 or 99"]
    slo_seconds: Annotated[Seconds | None, "the latency limit"]
    token_limits: Annotated[tuple[ServeLimitJson, ...], "of a language model: all must be kept"]
    requests_per_second: Annotated[Amount | None, "the rate to sustain"]
    budget_usd: Annotated[Amount | None, "cap on load tests and verification"]
    deadline_seconds: Annotated[Seconds | None, "cap on load tests and verification"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeScenarioJson:
    """How the server was loaded."""

    scenario: Annotated[str | None, "single-stream, multi-stream, server, offline or chat"]
    headroom: Annotated[Share | None, "share of the measured rate that is not promised"]
    verify_seconds: Annotated[Seconds | None, "how long the choice is verified; 0: not at all"]
    from_node: Annotated[bool, "whether one node more of each lease sent the load; else mlcd's own machine did"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeChoiceJson:
    """What is recommended."""

    config: Knobs
    usd_per_hour: Money
    requests_per_second: Annotated[Amount, "promised; verified if the job asks for that"]
    measured_requests_per_second: Annotated[Amount, "in its load test"]
    usd_per_million_requests: Money
    usd_per_million_output_tokens: Annotated[Money | None, "of a language model; null for others"]
    most_in_flight: Annotated[Amount | None, "of a language model: the requests in flight at its measured rate"]
    queueing_seconds: Annotated[
        tuple[Seconds, ...] | None, "of a language model: p50, p95, p99 of ttft beyond that of a request alone"
    ]
    verified_seconds: Annotated[Seconds | None, "null: not verified"]
    load: ServeLoadJson


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeChangeJson:
    """What a simulated queue shows when the traffic of an hour begins."""

    hour: Annotated[Count, "of the profile, from 0"]
    requests_per_second: Annotated[tuple[Amount, ...], "before and after"]
    replicas: Annotated[tuple[Count, ...], "before and after"]
    broken: Annotated[tuple[str, ...], "limits that are broken, in words; empty: all are kept"]
    late_broken: Annotated[tuple[str, ...], "the same if replicas follow the traffic"]
    wait_p99_seconds: Annotated[Seconds, "for a replica that takes a request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeDayJson:
    """Replicas for traffic that changes by the hour; computed from what was measured of one replica."""

    hourly_requests_per_second: tuple[Amount, ...]
    replicas: Annotated[tuple[Count, ...], "of every hour"]
    replica_requests_per_second: Annotated[Amount, "what one replica holds"]
    start_seconds: Annotated[Seconds, "how much earlier than its hour a replica is started"]
    follow_seconds: Annotated[Seconds, "how late replicas are that follow the traffic"]
    usd_per_day: Money
    fixed_replicas: Annotated[Count, "as many as the busiest hour needs"]
    fixed_usd_per_day: Annotated[Money, "with so many all the time"]
    changes: Annotated[tuple[ServeChangeJson, ...], "the replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeModelJson:
    """A known model."""

    name: str
    alike: Annotated[Share, "share of its time in operators that both have"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeResemblesJson:
    """Known models that the model resembles."""

    models: tuple[ServeModelJson, ...]
    covered: Annotated[Share, "share of its time in operators that were measured before"]
    confidence: Share
    word: Annotated[str, "the resemblance as a word"]
    unseen_operators: Annotated[tuple[str, ...], "never measured before"]
    source: Annotated[str, "source and date of the known models"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeVerificationJson:
    """One verification under load."""

    config: Knobs
    held: bool
    message: Annotated[str, "why it failed; empty if it passed"]
    seconds: Seconds
    usd: Money
    load: ServeLoadJson | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeReceiptJson:
    """What it took."""

    trials: Count
    failed_trials: Count
    search_seconds: Seconds
    search_usd: Money
    verifications: tuple[ServeVerificationJson, ...]
    total_seconds: Seconds
    total_usd: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeFailureJson:
    """Why a load test failed."""

    kind: FailureKind
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeMeasuredJson:
    """What a load test measured."""

    requests_per_second: Annotated[Amount, "the highest rate that kept the limit"]
    relative_error: Amount
    startup_seconds: Seconds
    extended: Annotated[bool, "whether it was extended to become precise"]
    meets_goal: bool
    load: ServeLoadJson | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeTrialJson:
    """One load test; measured or failure is null."""

    number: Number
    config: Knobs
    attempt: Number
    reason: Annotated[str, "why it was tried"]
    usd_per_hour: Annotated[Money, "of its lease, with the node that sends the load where there is one"]
    authorised_usd: Annotated[Money, "the worst case that the ledger authorised"]
    authorised_seconds: Seconds
    seconds: Seconds
    usd: Money
    failure: ServeFailureJson | None
    measured: ServeMeasuredJson | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeDeployedJson:
    """Only from mlcd serve: the server that keeps running."""

    address: str
    pid: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeJson:
    """One run of mlcd serve, as printed by -o json.

    The unit of every number is in its key; money is in US dollars; null means none.
    """

    schema: Annotated[Literal[1], "increases when a key is removed or changes its meaning"]
    kind: Annotated[Literal["serve"], "kind of job: train, serve or serverless"]
    run_id: Annotated[str, "the name for mlcd show, report and resume"]
    name: Annotated[str, "the job's name"]
    created: Annotated[str, "when the run began, ISO 8601"]
    status: Annotated[Status, "how it ended"]
    exit_code: Annotated[Count, "the command line's exit code for this status"]
    cloud: Annotated[str, "resources.infra"]
    nominal_prices: Annotated[bool, "true if nobody is charged"]
    strategy: Annotated[str, "name with its options"]
    seed: Annotated[Count, "seed of every random choice"]
    version: Annotated[str, "of mlcd"]
    model: Annotated[str | None, "the ONNX file"]
    goal: Annotated[ServeGoalJson, "what was asked"]
    load: Annotated[ServeScenarioJson, "how the server was loaded"]
    configurations: Annotated[Count, "size of the space"]
    untried: Annotated[Count, "configurations that were not tried"]
    stopped: Annotated[str, "why the search ended"]
    choice: Annotated[ServeChoiceJson | None, "what is recommended"]
    day: Annotated[ServeDayJson | None, "replicas by the hour, if the job has a profile of its traffic"]
    nearest: Annotated[ServeRejectedJson | None, "the nearest miss, if nothing meets the goal"]
    ways_out: Annotated[tuple[str, ...], "limits under which something would fit"]
    resembles: Annotated[ServeResemblesJson | None, "known models that the model resembles"]
    receipt: Annotated[ServeReceiptJson, "what it took"]
    trials: Annotated[tuple[ServeTrialJson, ...], "every load test, in order"]
    why_not: Annotated[tuple[ServeRejectedJson, ...], "every configuration that was tried and rejected"]
    notes: Annotated[tuple[str, ...], "what a reader should know"]
    deployed: Annotated[ServeDeployedJson | LeftOut | None, "only from mlcd serve: the server that keeps running"] = (
        LEFT_OUT
    )
    written: Annotated[tuple[str, ...] | LeftOut, "only from mlcd serve: the files that were written"] = LEFT_OUT
