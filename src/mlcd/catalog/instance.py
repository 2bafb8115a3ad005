"""One instance type: its size, its price, and what models may use of it."""

import math
from dataclasses import dataclass

from mlcd.units import Usd

INFERENCE_ONLY = ("Inferentia", "Inferentia2")
"""Accelerators whose SDK does not train (AWS: Inferentia is for inference, Trainium for training)."""
NOT_GPUS = ("Inferentia", "Trainium", "TPU")
"""How the names of accelerators begin that are no GPUs: they need software of their own."""
BURSTABLE = {
    "aws": ("t2.", "t3.", "t3a.", "t4g."),
    "azure": ("Standard_B",),
    "gcp": ("f1-", "g1-", "e2-micro", "e2-small", "e2-medium"),
}
"""By cloud, how the names of types begin whose processors run at full speed only while credits last (the vendors' pages
on burstable and shared-core types, 2026-08): a short trial measures a speed that a training does not keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance type in one region of one cloud.

    network_gbps             baseline bandwidth (not the burst) as the vendor documents it
    accelerator_tflops       dense peak of ONE accelerator in the precision training uses (see the catalog's notes)
    accelerator_memory_gib   of ONE accelerator
    """

    cloud: str
    name: str
    vcpus: float
    memory_gib: float
    network_gbps: float
    usd_per_hour: Usd
    spot_usd_per_hour: Usd | None = None
    accelerator: str | None = None
    accelerators: int = 0
    accelerator_tflops: float = 0.0
    accelerator_memory_gib: float = 0.0

    def __post_init__(self) -> None:
        if min(self.vcpus, self.memory_gib, self.network_gbps, self.usd_per_hour.micros) <= 0:
            raise ValueError(f"{self.name}: vCPUs, memory, network and price must be more than 0")
        if self.spot_usd_per_hour is not None and self.spot_usd_per_hour.micros <= 0:
            raise ValueError(f"{self.name}: a spot price must be more than 0")
        if min(self.accelerators, self.accelerator_tflops, self.accelerator_memory_gib) < 0:
            raise ValueError(f"{self.name}: an accelerator's figures must not be negative")

    def price(self, *, spot: bool) -> Usd | None:
        """USD per hour of one node; None if there is no spot market."""
        return self.spot_usd_per_hour if spot else self.usd_per_hour

    @property
    def has_gpu(self) -> bool:
        """Whether its accelerators are GPUs."""
        return self.accelerators > 0 and not (self.accelerator or "").startswith(NOT_GPUS)

    @property
    def unfit_for_training(self) -> str:
        """Why a training should not run there: `inference only` or `burstable`; "" if it may."""
        if self.accelerator in INFERENCE_ONLY:
            return "inference only"
        return "burstable" if self.name.startswith(BURSTABLE.get(self.cloud, ())) else ""

    @property
    def features(self) -> tuple[float, ...]:
        """The features that a model may use: log2 of size, speed, network and price. Equal length for all types."""
        return (
            math.log2(self.vcpus),
            math.log2(self.memory_gib),
            math.log2(1 + self.accelerators * self.accelerator_tflops),
            math.log2(1 + self.accelerators * self.accelerator_memory_gib),
            math.log2(self.network_gbps),
            math.log2(self.usd_per_hour.dollars),
        )
