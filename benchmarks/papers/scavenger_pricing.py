"""The hourly price of K workers at a global batch B: by node, or by each worker's memory.

Scavenger shows both. By memory, the price depends on the batch: a worker gets the memory that its share B/K needs.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from mlcd.errors import BadInput


class PricePolicy(StrEnum):
    """How workers are paid for."""

    PER_NODE = "per-node"
    MEMORY = "memory-proportional"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerNode:
    """Every worker costs the same for any batch."""

    usd_per_worker_hour: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.usd_per_worker_hour) and self.usd_per_worker_hour >= 0):
            raise BadInput(f"a price is 0 or more (got {self.usd_per_worker_hour!r})")

    def usd_per_hour(self, workers: int, batch: float) -> float:  # noqa: ARG002 - the same call for every policy
        """Of all workers together."""
        return workers * self.usd_per_worker_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class ByMemory:
    """A worker is paid by its memory: `fixed_gib` for the model and the framework, `gib_per_sample` of its batch."""

    usd_per_gib_hour: float
    fixed_gib: float
    gib_per_sample: float

    def __post_init__(self) -> None:
        values = (self.usd_per_gib_hour, self.fixed_gib, self.gib_per_sample)
        if not all(math.isfinite(value) and value >= 0 for value in values):
            raise BadInput("a price by memory has a price, a fixed part and a part a sample, each 0 or more")

    def memory_gib(self, workers: int, batch: float) -> float:
        """Of one worker."""
        if workers < 1 or batch < workers:
            raise BadInput(f"a batch of {batch:g} cannot be shared by {workers} workers")
        return self.fixed_gib + self.gib_per_sample * math.ceil(batch / workers)

    def usd_per_hour(self, workers: int, batch: float) -> float:
        """Of all workers together."""
        return workers * self.memory_gib(workers, batch) * self.usd_per_gib_hour


Pricing = PerNode | ByMemory
