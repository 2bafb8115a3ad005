"""The JSON result of `mlcd serverless`, key by key."""

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
from mlcd.trial.outcome import Status
from mlcd.units import Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessPhaseJson:
    """Of the functions."""

    mean: Amount
    max: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessInstanceJson:
    """One plain machine."""

    name: str
    usd_per_hour: Money
    seconds: Annotated[Seconds, "predicted, of the whole training"]
    usd: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessEpochJson:
    """One epoch."""

    go: Annotated[Number, "epochs started so far, including failed ones"]
    epoch: Number
    functions: Number
    memory_mb: Number
    share: Annotated[Share, "of the epoch's samples: less than 1 if only a part of an epoch was run"]
    authorised_usd: Annotated[Money, "the worst case that the ledger authorised"]
    authorised_seconds: Seconds
    seconds: Seconds
    usd: Money
    loss: Annotated[float | None, "at its end; null if it failed"]
    failure: Annotated[str | None, "why it failed"]
    fetch_seconds: ServerlessPhaseJson | LeftOut = LEFT_OUT
    compute_seconds: ServerlessPhaseJson | LeftOut = LEFT_OUT
    update_seconds: ServerlessPhaseJson | LeftOut = LEFT_OUT
    calls: Count | LeftOut = LEFT_OUT
    repeated_calls: Annotated[Count | LeftOut, "calls that failed or lagged"] = LEFT_OUT
    cold_starts: Count | LeftOut = LEFT_OUT
    memory_share: Annotated[Amount | LeftOut | None, "peak use of the functions' memory"] = LEFT_OUT
    cpu_share: Annotated[Amount | LeftOut | None, "share of the epoch spent computing"] = LEFT_OUT
    total_seconds: Annotated[Seconds, "so far"]
    total_usd: Annotated[Money, "so far"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessGoalJson:
    """What was asked."""

    minimize: Objectives
    budget_usd: Annotated[Amount | None, "cap on the whole training"]
    deadline_seconds: Seconds | None
    target_loss: Annotated[float, "loss at which the training is done"]
    max_epochs: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessPricesJson:
    """What a call costs."""

    name: str
    date: Annotated[str, "of the table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessReceiptJson:
    """What it took."""

    training_seconds: Annotated[Seconds, "of all epochs, including failed ones and downtime of mlcd during an epoch"]
    elapsed_seconds: Seconds
    total_usd: Money
    failed_usd: Annotated[Money, "the part for failed epochs"]
    cap_usd: Money | None
    left_usd: Usd | None
    calls: Count
    repeated_calls: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessInstancesJson:
    """Whether plain machines would be better."""

    text: str
    better: Annotated[ServerlessInstanceJson | None, "the cheapest that is no slower"]
    compared: tuple[ServerlessInstanceJson, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessJson:
    """One training on functions, as printed by mlcd serverless -o json.

    The unit of every number is in its key; money is in US dollars; null means none.
    """

    schema: Annotated[Literal[1], "increases when a key is removed or changes its meaning"]
    kind: Annotated[Literal["serverless"], "kind of job: train, serve or serverless"]
    run_id: Annotated[str, "the name for mlcd show, report and resume"]
    name: Annotated[str, "the job's name"]
    created: Annotated[str, "when the run began, ISO 8601"]
    status: Annotated[Status, "how it ended"]
    exit_code: Annotated[Count, "the command line's exit code for this status"]
    simulated: Annotated[bool, "true if time and money are not real"]
    cloud: Annotated[str, "resources.infra"]
    model: Annotated[str, "what is trained"]
    model_file: Annotated[
        str | None, "the trained model: its parameters as one float32 vector, for numpy.load; null if simulated"
    ]
    sync: Annotated[
        str, Among("hsp", "bsp", "asp", ""), "how functions synchronise; makes no difference on the simulated cloud"
    ]
    strategy: Annotated[str, "scheduler with its options"]
    seed: Annotated[Count, "seed of every random choice"]
    version: Annotated[str, "of mlcd"]
    goal: Annotated[ServerlessGoalJson, "what was asked"]
    prices: Annotated[ServerlessPricesJson, "what a call costs"]
    stopped: Annotated[str, "why the training ended"]
    reached: Annotated[bool, "whether the target loss was reached"]
    loss: Annotated[float | None, "the last one"]
    smallest_budget_usd: Annotated[Money | None, "smallest sufficient budget, if the budget was too small"]
    ways_out: Annotated[tuple[str, ...], "what would have sufficed, if the target was not reached"]
    earlier_runs: Annotated[tuple[str, ...], "earlier runs of the same training that the scheduler learnt from"]
    receipt: Annotated[ServerlessReceiptJson, "what it took"]
    epochs: Annotated[tuple[ServerlessEpochJson, ...], "in order, including failed ones"]
    instances: Annotated[ServerlessInstancesJson, "whether plain machines would be better"]
