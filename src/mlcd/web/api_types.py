"""The answers of the JSON API that no command prints, key by key. Runs themselves are as `mlcd show RUN -o json`."""

from dataclasses import dataclass
from typing import Annotated

from mlcd.report.result_types import Among, Amount, Count, Money, Number, Seconds, Share
from mlcd.space import Config
from mlcd.units import Usd

Kinds = Annotated[str, Among("train", "serve", "serverless")]
States = Annotated[str, "as in `mlcd runs`: `stopped` has not ended, and no process works on it"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorJson:
    """What was wrong."""

    error: Annotated[str, "one sentence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNowJson:
    """Where a run stands. spent + committed + reserved + remaining = budget, where there is one."""

    run_id: str
    rows: Annotated[Count, "grows with everything that is recorded of the run"]
    kind: Kinds
    state: States
    live: Annotated[bool, "whether a process works on it now"]
    trials: Annotated[Count, "trials or epochs that have ended"]
    steps: Annotated[Count, "that were authorised"]
    spent_usd: Money
    committed_usd: Annotated[Money, "the most that the steps in flight may cost"]
    reserved_usd: Annotated[Money, "kept for the run on the incumbent, at its upper bound"]
    remaining_usd: Annotated[Usd | None, "null without a budget; negative if it was exceeded"]
    budget_usd: Money | None
    elapsed_seconds: Seconds
    deadline_seconds: Seconds | None
    running: Annotated[tuple[str, ...], "the steps in flight, in words"]
    best: Annotated[str | None, "the choice, else the best measured configuration that fits what remains"]
    best_seconds: Annotated[Seconds | None, "expected, for the whole training"]
    best_usd: Annotated[Money | None, "expected, for the whole training"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListedJson:
    """A run of the list: as in `mlcd runs -o json`, with its state and its money."""

    run_id: str
    kind: Kinds
    created: Annotated[str, "ISO 8601; empty for a damaged run"]
    cloud: str
    strategy: str
    goal: str
    choice: str | None
    status: str
    damage: Annotated[str, "what is wrong with the run's record; empty where nothing is"]
    live: bool
    trials: Count
    spent_usd: Money
    state: States
    budget_usd: Money | None
    committed_usd: Money
    reserved_usd: Money
    remaining_usd: Usd | None
    best: str | None
    spending_usd: Annotated[tuple[Money, ...], "after each step that has ended, at most 40 points"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsJson:
    """A part of the list of runs, the newest first."""

    matching: Annotated[Count, "runs that the filters match, in all"]
    offset: Count
    runs: tuple[RunListedJson, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunJson:
    """A run that was started or resumed, or is being stopped."""

    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckJson:
    """Whether a job file is valid: the first mistake, in the words of the command line."""

    kind: Annotated[Kinds | None, "which command the file is for; null if that cannot be told"]
    name: str | None
    infra: str | None
    free: Annotated[bool, "whether nobody is charged there, so that this page may start it"]
    error: str | None
    line: Number | None
    field: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogJson:
    """The output of one node in one step."""

    number: Annotated[Count, "of this log in the list"]
    step: Number | None
    title: str
    node: Count
    bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsJson:
    """The logs of a run."""

    run_id: str
    logs: tuple[LogJson, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLinesJson:
    """Lines of a log, from `offset` of its bytes; `next_offset` is where to go on."""

    lines: tuple[str, ...]
    next_offset: Count
    live: Annotated[bool, "whether more may follow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionJson:
    """A measured configuration, with what the whole training takes there."""

    config: Config
    text: Annotated[str, "the configuration in words"]
    seconds: Seconds
    usd: Money
    worst_seconds: Annotated[Seconds, "the upper bound"]
    worst_usd: Annotated[Money, "the upper bound"]
    fits: Annotated[bool, "whether it fits the limits at its upper bound, the search included"]
    on_front: Annotated[bool, "whether no other is both faster and cheaper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStepJson:
    """From this budget on, search included, this would be chosen."""

    budget_usd: Money
    text: str
    seconds: Seconds
    usd: Money
    worst_usd: Annotated[Money, "the training at its upper bound; with the search, this is the budget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTrialJson:
    """The trial that the strategy would make next, with the most it may take."""

    text: Annotated[str, "the configuration in words"]
    usd: Money
    seconds: Seconds
    reason: Annotated[str, "what it is expected to bring"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfJson:
    """What would be decided under other limits, from what was measured; the same as `mlcd.what_if`."""

    run_id: str
    budget_usd: Money | None
    deadline_seconds: Seconds | None
    time_weight: Share | None
    text: Annotated[str, "the answer in a sentence"]
    choice: Annotated[str | None, "the configuration in words; null if nothing measured fits"]
    choice_seconds: Seconds | None
    choice_usd: Money | None
    total_seconds: Annotated[Seconds | None, "search and training together, expected"]
    total_usd: Annotated[Money | None, "search and training together, expected"]
    spent_seconds: Annotated[Seconds, "that the search took"]
    spent_usd: Annotated[Money, "that the search cost"]
    knee: Annotated[str | None, "of the front of time and money"]
    options: tuple[OptionJson, ...]
    steps: tuple[BudgetStepJson, ...]
    next_trial: NextTrialJson | None
    stopped: Annotated[str, "why no further trial would be made; empty if one would, or it was not asked for"]
    ways_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptionJson:
    """A configuration of a server that was load-tested."""

    config: Config
    text: Annotated[str, "the configuration in words"]
    requests_per_second: Annotated[Amount, "that may be promised; as measured if `rate` is given or a limit is broken"]
    usd_per_hour: Money
    usd_per_million: Annotated[Money, "a million requests, at that rate"]
    seconds: Annotated[tuple[float | None, ...], "what each of `limits` is on, at that rate; null: not measured"]
    misses: Annotated[str, "why it does not do; empty if it does"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingWhatIfJson:
    """Which server would be chosen for another rate or under other limits."""

    run_id: str
    rate: Annotated[Amount | None, "requests per second to hold; null: as many as it can"]
    limits: Annotated[tuple[str, ...], "the names of the job's latency limits"]
    text: Annotated[str, "the answer in a sentence"]
    choice: Annotated[str | None, "the configuration in words; null if nothing measured does"]
    options: tuple[ServingOptionJson, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyNotJson:
    """Why one that could have been chosen was not."""

    run_id: str
    of: Annotated[str, "an instance type, or a configuration of a server"]
    answers: Annotated[tuple[str, ...], "sentences, the reason first; empty if nothing is recorded of it"]
    more: Annotated[tuple[str, ...], "all that is recorded of it, in full; empty if `answers` say it"]
    subjects: Annotated[tuple[str, ...], "all that can be asked about"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateJson:
    """A job file to begin with."""

    name: str
    command: Kinds
    what: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatesJson:
    """The job files that `mlcd init` writes."""

    templates: tuple[TemplateJson, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSummaryJson:
    """One strategy under one goal and length; docs/bench.md has the meanings."""

    strategy: str
    goal: str
    hours: Amount
    runs: Count
    mean_ratio: Amount
    low_ratio: Annotated[Amount, "95% interval"]
    high_ratio: Annotated[Amount, "95% interval"]
    median_ratio: Amount
    p95_ratio: Amount
    violations: Count
    unfinished: Count
    mean_trials: Amount
    probe_share: Annotated[Share | None, "of the search in the total; null where no run was finished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPointJson:
    """One run: what its search cost, and its total over the best possible run."""

    strategy: str
    workload: str
    search_usd: Money
    ratio: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchJson:
    """The results of one `mlcd bench train -o json`."""

    name: str
    summary: tuple[BenchSummaryJson, ...]
    points: tuple[BenchPointJson, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchesJson:
    """The results that `mlcd ui --bench FILE` was given."""

    results: tuple[BenchJson, ...]
