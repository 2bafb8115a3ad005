"""Serverless training: the fleet chosen for an epoch, and the outcome of the epoch."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcd.units import Usd

LEAST_SHARE = 0.01
"""The smallest part of an epoch that can be run, as a share of its samples."""


@dataclass(frozen=True, slots=True, order=True)
class Fleet:
    """What is decided before each epoch: n functions with m MB of memory each, as in Siren, and the share of samples.

    share  share of an epoch's samples until the barrier: 1 in Siren; less to learn early what a workload is like, and
           to end when the target is near
    """

    functions: int
    memory_mb: int
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.functions < 1 or self.memory_mb < 1:
            raise ValueError("a fleet must have at least one function, and memory above 0 MB")
        if not LEAST_SHARE <= self.share <= 1:
            raise ValueError(f"a fleet's share of an epoch must be between {LEAST_SHARE:.0%} and 100%")

    @property
    def plain(self) -> str:
        """The fleet in words, without its share."""
        return f"{self.functions} x {self.memory_mb:,} MB"

    def __str__(self) -> str:
        return self.plain if self.share == 1 else f"{self.plain} for {self.share:.0%} of the samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The time of one phase of work, over the functions of an epoch (the paper's vectors P^F, P^C, P^U)."""

    mean_seconds: float
    max_seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.mean_seconds <= self.max_seconds * (1 + 1e-9) < math.inf:
            raise ValueError("a phase's times must be finite, and its mean must not exceed its maximum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A finished epoch or part of one, frozen.

    number        from 1; parts of epochs are numbered too
    loss          of the whole training at the epoch's end
    seconds       wall-clock time, barrier to barrier (simulated time on a simulated cloud)
    usd           the total: functions, requests, storage, failed calls
    calls         functions invoked, repeated ones included; failed: those that had to be repeated
    memory_share, cpu_share  share of the functions' memory and processor that was used; None if the cloud cannot tell
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
            raise ValueError("an epoch needs a number from 1, a finite loss, and time and money that are not negative")
        if not 0 <= self.failed <= self.calls:
            raise ValueError("failed calls must not exceed the calls made")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedEpoch:
    """An epoch that did not complete, with its cost. It has no loss, and the parameters are those from before it.

    hopeless  whether it would fail again on any fleet, such as because of a mistake in the user's model
    lost      whether mlcd, not the functions, is the cause: mlcd ended while the epoch ran
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
    """What may still be spent, according to the epoch ledger; None if there is no limit.

    usd, seconds  remaining budget, and time until the deadline
    epochs        how many more may be run; parts of epochs count as their share
    cap_seconds   (F, M) over the problem's function counts and memory sizes: the longest epoch that the remaining
                  budget pays for in the worst case. An epoch still running then is ended, and its money is lost.
                  0 if the budget does not pay for one granule of time: such a fleet is refused
    failed        epochs that the functions did not complete: too slow for their cap, or failed
    """

    usd: Usd | None
    seconds: float | None
    epochs: float
    cap_seconds: NDArray[np.float64]
    failed: tuple[FailedEpoch, ...] = ()

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """(F, M) whether the ledger would authorise an epoch of each fleet now."""
        return self.cap_seconds > 0
