"""The order that a function gets, and its report. Both are pickled: plain values only."""

import math
from dataclasses import dataclass, field, fields
from enum import StrEnum

from mlcd.clouds.functions.lithops.objects import EpochTry
from mlcd.version import __version__
from mlcd.workloads.data import Layout


class Sync(StrEnum):
    """How functions synchronise within an epoch; every mode has a barrier at its end."""

    HSP = "hsp"
    """No function waits: each merges what others have pushed when it pushes (hybrid synchronous parallel)."""
    BSP = "bsp"
    """All functions wait for each other after every step (bulk synchronous parallel)."""
    ASP = "asp"
    """No function waits, not even at the end: the epoch ends once its number of steps was made, by any functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Injected faults, for tests and benchmarks; the same for the same seed.

    fail_share      share of calls that die, at a random step, on their first attempt
    pause_share     share of steps before which a function pauses for `pause_seconds`
    slow_shards     shards whose first attempt pauses before every step
    """

    seed: int = 0
    fail_share: float = 0.0
    pause_share: float = 0.0
    pause_seconds: float = 0.0
    slow_shards: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSource:
    """Where the samples are stored, and which model is trained on them.

    rows, held  rows to train on, and after them held-out rows to measure the loss on
    model       a built-in name, or MODULE:FUNCTION of the user's own file, which is in storage as `model.py`
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
    batch        samples of a step of all functions together
    rate         learning rate of that step
    share        share of the epoch's samples that this part of it processes
    pushes       how often a function pushes its steps to the others, spread over the part (HSP, ASP)
    fan_in       from how many others it merges steps while the epoch runs; the barrier merges all
    seconds      the function ends before this, and leaves the rest to another call
    bucket       where the objects are; "" is Lithops' own
    processor_share   share of one CPU that its memory size pays for; None: the cloud enforces it
    mlcd_version      of the mlcd that sends it; a function with another one refuses it
    """

    epoch_try: EpochTry
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
    mlcd_version: str = __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport:
    """A function's report when it ends.

    steps      steps of its shard that are in storage now
    done       whether those are all of them
    closed     whether it closed the epoch
    fetch, compute, update   seconds of its work: reading data and parameters; gradients; pushing, reading, closing
    waited     seconds spent waiting for others (included in `update`)
    failed     why it gave up although another call may succeed; "" otherwise
    broken     why the user's model cannot be trained by any call; "" otherwise
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

    @property
    def malformed(self) -> str:
        """What is wrong with it; "" where nothing is. It comes from elsewhere, pickled: nothing has checked it."""
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type in (int, float) and (
                isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf
            ):
                return f"{each.name} should be a number of at least 0"
            if each.type in (bool, str) and not isinstance(value, each.type):
                return f"{each.name} should be a {each.type.__name__}"
        return ""
