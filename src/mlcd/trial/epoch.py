"""Training on functions: the fleet chosen for an epoch, and what the epoch brought."""

import math
from dataclasses import dataclass

from mlcd.units import Usd


@dataclass(frozen=True, slots=True, order=True)
class Fleet:
    """What Siren decides before each epoch: n functions with m MB of memory each."""

    functions: int
    memory_mb: int

    def __post_init__(self) -> None:
        if self.functions < 1 or self.memory_mb < 1:
            raise ValueError("a fleet has at least one function, with memory")

    def __str__(self) -> str:
        return f"{self.functions} x {self.memory_mb:,} MB"


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
    """A finished epoch, frozen.

    number        from 1
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
