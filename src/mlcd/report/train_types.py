"""The JSON result of `mlcd train`, key by key."""

from dataclasses import dataclass
from typing import Annotated, Literal

from mlcd.report.result_types import (
    Among,
    Amount,
    Count,
    Interval,
    Money,
    MoneyInterval,
    Number,
    Objectives,
    Percent,
    Seconds,
)
from mlcd.run.attempt import Ending
from mlcd.run.findings import RejectionReason as R
from mlcd.space import Config
from mlcd.trial.outcome import Status
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd

Knobs = Annotated[Config, "a value for every knob: instance and nodes in training"]
Reason = Annotated[
    R,
    Among(
        R.OVER_BUDGET,
        R.LATE,
        R.SLOWER,
        R.DEARER,
        R.WORSE_KNEE,
        R.TIED,
        R.PASSED_OVER,
        R.OPEN,
        R.FAILED,
        R.NOT_AFFORDABLE,
        R.NOT_TRIED,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetricsJson:
    """Means over nodes by the cloud's own monitoring, as far as it had reported when the nodes were released."""

    source: Annotated[str, "the monitoring service"]
    nodes: Annotated[Number, "nodes with data"]
    cpu_percent: Annotated[Percent | None, "utilisation of a node's processors"]
    received_bytes: Annotated[Amount | None, "that a node received"]
    sent_bytes: Annotated[Amount | None, "that a node sent"]
    gpu_percent: Annotated[Percent | None, "share of the time in which a node's GPUs computed"]
    gpu_memory_gib: Annotated[Amount | None, "the most in use of one GPU's memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainAttemptJson:
    """The training, or one attempt at it."""

    instance: Annotated[str, "where it ran"]
    nodes: Annotated[Number, "on how many"]
    batch: Annotated[Number | None, "the global batch, if it is chosen"]
    ending: Annotated[
        Ending,
        "stopped: at the end of the budget; overran: the cloud did not end it in its time; restarted after: lost (mlcd"
        " died), interrupted, restarted (nodes were lost), moved; continued: it runs beside trials",
    ]
    message: Annotated[str, "why"]
    seconds: Annotated[Seconds, "until it ended"]
    usd: Annotated[Money, "what it cost"]
    reached_samples: Annotated[Amount, "samples up to which the training is saved, or done if it has ended"]
    node_metrics: Annotated[NodeMetricsJson | None, "by the cloud's own monitoring; null if it has none"]
    missing_outputs: Annotated[tuple[str, ...], "outputs of the job file that a finished training did not leave"]
    kept_folder: Annotated[str, "where the node's files are kept because of that; else empty"]
    warning: Annotated[str, "what a finished training did otherwise than its job file says; else empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlanJson:
    """Training to the end on one deployment."""

    config: Knobs
    seconds: Annotated[Seconds, "expected time of the whole training"]
    usd: Annotated[Money, "expected cost of the whole training"]
    worst_seconds: Annotated[Seconds, "upper bound of seconds at settings.assurance"]
    worst_usd: Annotated[Money, "upper bound of usd at settings.assurance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainLearnedJson:
    """The metric of the model after a number of samples."""

    samples: Annotated[Amount, "of the whole training so far"]
    metric: Annotated[float, "as the job reported it"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainMeasuredJson:
    """What a trial measured."""

    samples_per_second: Annotated[Amount, "mean speed"]
    samples_per_second_interval: Interval
    relative_error: Annotated[Amount, "standard error of log speed"]
    iterations: Annotated[Number, "measured after warm-up"]
    startup_seconds: Annotated[Seconds, "from the order to the first sample"]
    extended: Annotated[bool, "whether it was extended to become precise"]
    utilisation: Annotated[Amount | None, "share of the processors in use"]
    model_flops_utilisation: Annotated[Amount | None, "FLOPs of the described model over the peak; null if not known"]
    node_metrics: Annotated[NodeMetricsJson | None, "by the cloud's own monitoring; null if it has none"]
    is_finished: Annotated[bool, "whether it did all of the work and left the outputs: no training followed"]
    noise_scale: Annotated[Amount | None, "of the gradients, in samples, if measured"]
    learned: Annotated[tuple[TrainLearnedJson, ...], "the metric over samples, if the job has a target"]
    run_seconds: Annotated[Seconds, "expected time of the whole training there"]
    run_usd: Annotated[Money, "expected cost of the whole training there"]
    run_worst_seconds: Annotated[Seconds, "its upper bound"]
    run_worst_usd: Annotated[Money, "its upper bound"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainFailureJson:
    """Why a trial failed."""

    kind: FailureKind
    message: Annotated[str, "what the cloud or the job said"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainTrialJson:
    """One trial; measured or failure is null."""

    number: Annotated[Number, "from 1"]
    round: Annotated[Count, "trials of one round ran in parallel"]
    config: Knobs
    attempt: Annotated[Number, "of this configuration"]
    reason: Annotated[str, "why it was tried: a saving in it is a mean, the time and money it expects are medians"]
    usd_per_hour: Annotated[Money, "of the whole configuration"]
    authorised_usd: Annotated[Money, "the most it was authorised to cost"]
    authorised_seconds: Annotated[Seconds, "the longest it was authorised to take"]
    started_seconds: Annotated[Seconds, "after the run's start"]
    reached_samples: Annotated[Amount, "samples of the training up to its checkpoint"]
    seconds: Annotated[Seconds, "what it took"]
    usd: Annotated[Money, "what it cost"]
    measured: Annotated[TrainMeasuredJson | None, "null for a failed trial"]
    failure: Annotated[TrainFailureJson | None, "null for a measured trial"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainGoalJson:
    """What was asked."""

    text: Annotated[str, "in words"]
    minimize: Objectives
    budget_usd: Annotated[Amount | None, "cap on search and training"]
    deadline_seconds: Annotated[Seconds | None, "cap on search and training"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainTargetJson:
    """The metric at which the training ends, if it ends by a metric."""

    metric: Annotated[str, "its name in the job's reports"]
    value: Annotated[float, "at which the training is done"]
    higher: Annotated[bool, "whether higher is better"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettingsJson:
    """Other settings that affect the result."""

    work_samples: Annotated[Amount, "samples x epochs"]
    configurations: Annotated[Number, "size of the space"]
    max_trials: Annotated[Number, "maximum number of trials"]
    assurance: Annotated[Amount, "probability of every upper bound"]
    noise: Annotated[Amount, "relative deviation between two runs"]
    work: Annotated[Literal["thrown", "kept", "beside"], "what becomes of the trials' work"]
    restart_seconds: Annotated[Seconds, "expected time to move a training"]
    slowdown: Annotated[Amount, "share by which the training may be slower than its trials"]
    trial_seconds: Annotated[Seconds, "planned for one node"]
    extra_seconds_per_3_nodes: Annotated[Amount, "added to a trial"]
    extension: Annotated[Amount, "share by which a trial may be extended"]
    watchdog_seconds: Annotated[Seconds, "silence after which a job counts as hung"]
    precision: Annotated[Amount, "relative width at which a trial ends"]
    retries: Annotated[Count, "of a failed trial"]
    reference_batch: Annotated[Number | None, "the batch at which samples are counted, if the batch is chosen"]
    target: Annotated[TrainTargetJson | None, "the metric at which the training ends, if it ends by a metric"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainWatchJson:
    """How a training is watched whose upper bound does not fit."""

    chance: Annotated[float, "probability that it fits, when it was chosen"]
    seconds: Annotated[Seconds, "after its start, when its own speed decides whether it stays"]
    usd: Annotated[Money, "what it costs until then"]
    fallback: Annotated[TrainPlanJson | None, "where it moves if it is too slow; null: it ends"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainChoiceJson:
    """The deployment recommended."""

    config: Knobs
    seconds: Annotated[Seconds, "expected time of the whole training"]
    usd: Annotated[Money, "expected cost of the whole training"]
    worst_seconds: Annotated[Seconds, "upper bound of seconds at settings.assurance"]
    worst_usd: Annotated[Money, "upper bound of usd at settings.assurance"]
    seconds_interval: Interval | None
    usd_interval: MoneyInterval | None
    watch: Annotated[TrainWatchJson | None, "how the training is watched; null if the upper bound fits the limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSavedJson:
    """One naive choice."""

    label: Annotated[str, "which one"]
    config: Knobs
    seconds: Annotated[float, "its training less the total"]
    usd: Annotated[Usd, "its training less the total"]
    breaks: Annotated[
        tuple[Annotated[str, Among("budget", "deadline")], ...], "the limits that its training alone would break"
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSpotJson:
    """What was done on spot nodes, with `use_spot: any`."""

    interruptions: Annotated[Count, "of trials and trainings"]
    lost_seconds: Annotated[Seconds, "charged, and kept by no checkpoint"]
    lost_usd: Annotated[Money, "its money"]
    spot_usd: Annotated[Money, "paid for spot nodes"]
    on_demand_usd: Annotated[Money, "the same run with every node on demand, without what interruptions took"]
    on_demand_seconds: Annotated[Seconds, "how long that would have taken"]
    fallbacks: Annotated[Count, "how often the training moved from spot nodes to on-demand ones"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReceiptJson:
    """What it took."""

    trials: Annotated[Count, "all of them"]
    failed_trials: Annotated[Count, "those without a speed"]
    search_seconds: Annotated[Seconds, "all trials, on the wall clock"]
    search_usd: Annotated[Money, "every node-second of every trial"]
    earlier: Annotated[tuple[TrainAttemptJson, ...], "earlier attempts at the training, paid and in the totals"]
    run_seconds: Annotated[Seconds | None, "the training, as far as it got"]
    run_usd: Annotated[Money | None, "the training"]
    run_is_predicted: Annotated[bool, "true if the training has not ended"]
    beside_seconds: Annotated[Seconds, "the trainings' time beside the search, counted once in the total"]
    data_usd: Annotated[Money, "of the money, for bringing data to the nodes"]
    total_seconds: Annotated[Seconds, "search and trainings"]
    total_usd: Annotated[Money, "search and trainings"]
    cap_seconds: Annotated[Seconds | None, "the deadline"]
    cap_usd: Annotated[Money | None, "the budget"]
    left_seconds: Annotated[float | None, "cap less total"]
    left_usd: Annotated[Usd | None, "cap less total"]
    spot: Annotated[TrainSpotJson | None, "null where nothing ran on spot nodes that `use_spot: any` chose"]
    saved: Annotated[tuple[TrainSavedJson, ...], "compared with not searching; negative if the naive choice takes less"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainWhyNotJson:
    """One deployment, or a group of untried ones."""

    subject: Annotated[str, "in words"]
    config: Knobs | None
    trial: Annotated[int | None, "its last trial's number"]
    kind: Reason
    text: Annotated[str, "the reason in words"]
    configurations: Annotated[Number, "number of configurations in the entry"]
    instances: Annotated[tuple[str, ...], "the types of a group of untried ones; else empty"]
    samples_per_second: Annotated[Amount | None, "as measured"]
    seconds: Annotated[Seconds | None, "expected time of the training there"]
    usd: Annotated[Money | None, "expected cost of the training there"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainNaiveJson:
    """A choice without a search."""

    label: Annotated[str, "which one"]
    measured: Annotated[bool, "false if seconds and usd are predictions"]
    config: Knobs
    seconds: Annotated[Seconds, "expected time of the whole training"]
    usd: Annotated[Money, "expected cost of the whole training"]
    worst_seconds: Annotated[Seconds, "upper bound of seconds at settings.assurance"]
    worst_usd: Annotated[Money, "upper bound of usd at settings.assurance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRelaxationJson:
    """The smallest change of a limit that would make a measured deployment fit."""

    text: Annotated[str, "in words"]
    budget_usd: Annotated[Money | None, "the budget it takes"]
    deadline_seconds: Annotated[Seconds | None, "the deadline it takes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReusedJson:
    """A trial of the same job in an earlier run, which counted from the start and cost nothing here."""

    run_id: Annotated[str, "the run that paid for it"]
    created: Annotated[str, "when that run began, ISO 8601"]
    catalog_date: Annotated[str, "of the prices it was paid at; plans use the prices of this run"]
    config: Knobs
    samples_per_second: Annotated[Amount | None, "measured there; null if it ran out of memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJson:
    """One run of mlcd train, as printed by -o json.

    The unit of every number is in its key; money is in US dollars; null means none.
    """

    schema: Annotated[Literal[1], "increases when a key is removed or changes its meaning"]
    kind: Annotated[Literal["train"], "kind of job: train, serve or serverless"]
    run_id: Annotated[str, "the name for mlcd show, report and resume"]
    name: Annotated[str, "the job's name"]
    created: Annotated[str, "when the run began, ISO 8601"]
    status: Annotated[Status, "how it ended"]
    exit_code: Annotated[Count, "the command line's exit code for this status"]
    simulated: Annotated[bool, "true if time and money are not real"]
    cloud: Annotated[str, "resources.infra"]
    strategy: Annotated[str, "name with its options"]
    seed: Annotated[int, "seed of every random choice"]
    parallel: Annotated[Number, "trials in parallel"]
    version: Annotated[str, "of mlcd"]
    catalog_date: Annotated[str, "of the prices"]
    goal: Annotated[TrainGoalJson, "what was asked"]
    settings: Annotated[TrainSettingsJson, "other settings that affect the result"]
    stopped: Annotated[str, "why the search ended"]
    choice: Annotated[TrainChoiceJson | None, "the deployment recommended"]
    training: Annotated[TrainAttemptJson | None, "how the training ended; null if there was none"]
    outputs: Annotated[str | None, "folder with the outputs of the training"]
    log: Annotated[str | None, "file with the output of the newest step that failed; null if none did"]
    receipt: Annotated[TrainReceiptJson, "what it took"]
    trials: Annotated[tuple[TrainTrialJson, ...], "in order"]
    reused: Annotated[tuple[TrainReusedJson, ...], "trials of earlier runs that counted"]
    why_not: Annotated[
        tuple[TrainWhyNotJson, ...], "all but the choice: measured (best first), failed, untried by reason"
    ]
    pareto: Annotated[
        tuple[TrainPlanJson, ...], "measured deployments that no other beats in both time and cost, fastest first"
    ]
    naive: Annotated[tuple[TrainNaiveJson, ...], "choices without a search"]
    relaxations: Annotated[
        tuple[TrainRelaxationJson, ...], "the smallest change of a limit that would make a measured deployment fit"
    ]
