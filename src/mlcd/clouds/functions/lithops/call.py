"""What a function is told, and what it reports. Both travel pickled: plain values only."""

from dataclasses import dataclass, field
from enum import StrEnum

from mlcd.clouds.functions.lithops.objects import EpochTry
from mlcd.workloads.data import Layout


class Sync(StrEnum):
    """How functions keep in step inside an epoch; at its end there is a barrier in every mode."""

    HSP = "hsp"
    """Nobody waits: each takes in what others have pushed when it pushes (hybrid synchronous parallel)."""
    BSP = "bsp"
    """Everybody waits for everybody after every step."""
    ASP = "asp"
    """Nobody waits, not even at the end: the epoch is over when as many steps were made as it has, by whomever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Trouble made on purpose, for tests and benchmarks; the same for the same seed.

    fail_share      of calls that die, at a step by chance, on their first attempt
    pause_share     of steps before which a function pauses for `pause_seconds`
    slow_shards     shards whose first attempt pauses before every step
    """

    seed: int = 0
    fail_share: float = 0.0
    pause_share: float = 0.0
    pause_seconds: float = 0.0
    slow_shards: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSource:
    """Where the samples lie, and what is made of them.

    rows, held  rows to train on, and behind them rows to tell the loss by
    model       a built-in name, or MODULE:FUNCTION of the user's own file, which lies in storage as `model.py`
    """

    x_key: str
    y_key: str
    x: Layout
    y: Layout
    rows: int
    held: int
    model: str
    module_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOrder:
    """One function's work: a shard of an epoch, from where its last attempt stopped.

    start_key    the parameters to start from; "" before the first epoch: the model's own
    batch        samples of a step of all functions together; rate: of that step
    share        of the epoch's samples that this part of it has
    pushes       how often a function tells the others of its steps, spread over the part (HSP, ASP)
    fan_in       of how many others it takes in the steps while the epoch runs; all come in at the barrier
    seconds      it ends by itself before this, and leaves the rest to another call
    bucket       where the objects lie; "" is Lithops' own
    processor_share   of one processor that its memory pays for; None: the cloud sees to that
    """

    trial: EpochTry
    source: ShardSource
    shard: int
    shards: int
    attempt: int
    start_key: str
    sync: Sync
    share: float
    batch: int
    rate: float
    seed: int
    pushes: int
    fan_in: int
    seconds: float
    memory_mb: int
    most_puts: int
    most_gets: int
    bucket: str = ""
    processor_share: float | None = None
    faults: Faults = field(default_factory=Faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport:
    """What a function says at its end.

    steps      of its shard that are in storage now; done: whether that is all of them
    fetch, compute, update   seconds of its work: reading data and parameters; gradients; pushing, reading, closing
    waited     seconds spent waiting for others (in `update`, too)
    failed     why it gave up, and another call may succeed; "" otherwise
    broken     why the user's model cannot be trained, whoever tries; "" otherwise
    """

    shard: int
    attempt: int
    steps: int
    done: bool
    closed: bool
    seconds: float
    fetch_seconds: float
    compute_seconds: float
    update_seconds: float
    waited_seconds: float
    cpu_seconds: float
    peak_mb: float
    puts: int
    gets: int
    failed: str = ""
    broken: str = ""
