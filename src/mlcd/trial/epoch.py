"""Training on functions: the fleet chosen for an epoch, and what the epoch brought."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcd.units import Usd

LEAST_SHARE = 0.01
"""Of an epoch, until the next barrier."""


@dataclass(frozen=True, slots=True, order=True)
class Fleet:
    """What is decided before each epoch: n functions with m MB of memory each, as Siren does; and for how long.

    share  of an epoch's samples until the barrier: 1 in Siren; less to learn early what a workload is like, and to end
           when the target is near
    """

    functions: int
    memory_mb: int
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.functions < 1 or self.memory_mb < 1:
            raise ValueError("a fleet has at least one function, with memory")
        if not LEAST_SHARE <= self.share <= 1:
            raise ValueError(f"a part of an epoch is at least {LEAST_SHARE:.0%} of it, and at most all")

    @property
    def plain(self) -> str:
        """The functions alone."""
        return f"{self.functions} x {self.memory_mb:,} MB"

    def __str__(self) -> str:
        return self.plain if self.share == 1 else f"{self.plain} for {self.share:.0%} of the samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One part of a function's work, over the functions of an epoch (the paper's vectors P^F, P^C, P^U)."""

    mean_seconds: float
    max_seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.mean_seconds <= self.max_seconds * (1 + 1e-9) < math.inf:
            raise ValueError("a phase takes a finite time, and no longer in the mean than at most")


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A finished epoch or part of one, frozen.

    number        from 1; parts are counted, too
    loss          of the whole training at the epoch's end
    seconds       on the wall clock, barrier to barrier (simulated where the cloud is)
    usd           all of it: functions, requests, storage, calls that failed
    calls         functions invoked, repeated ones included; failed: those that had to be repeated
    memory_share, cpu_share  of what the functions had, where the cloud can tell
    """

    number: int
    fleet: Fleet
    loss: float
    seconds: float
    usd: Usd
    fetch: Phase
    compute: Phase
    update: Phase
    calls: int
    failed: int = 0
    cold_starts: int = 0
    memory_share: float | None = None
    cpu_share: float | None = None

    def __post_init__(self) -> None:
        if self.number < 1 or not math.isfinite(self.loss) or not 0 <= self.seconds < math.inf or self.usd.micros < 0:
            raise ValueError("an epoch has a number, a finite loss, and takes time and money")
        if not 0 <= self.failed <= self.calls:
            raise ValueError("no more calls can fail than were made")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedEpoch:
    """An epoch that did not end, with what it cost: no loss, and the parameters are those before it.

    hopeless  whether it would fail again on any functions, such as for a mistake in the user's model
    lost      whether mlcd, not the functions, is the reason: it was ended while the epoch ran
    """

    number: int
    fleet: Fleet
    seconds: float
    usd: Usd
    message: str
    hopeless: bool = False
    lost: bool = False


@dataclass(frozen=True, kw_only=True)
class RemainingEpochs:
    """What the epoch ledger says may still be spent, None where there is no limit.

    usd, seconds  of the budget, and until the deadline
    epochs        how many more may be run; parts count as what they are
    cap_seconds   (F, M) over the problem's numbers of functions and memory sizes: the longest epoch that what is left
                  would pay for in the worst case; an epoch still running then is ended, and its money is lost.
                  0 where not even one granule of time could be paid: such a fleet is refused
    failed        epochs that their functions did not end: too slow for their cap, or worse
    """

    usd: Usd | None
    seconds: float | None
    epochs: float
    cap_seconds: NDArray[np.float64]
    failed: tuple[FailedEpoch, ...] = ()

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """(F, M) whether the ledger would let an epoch of each fleet start now."""
        return self.cap_seconds > 0
