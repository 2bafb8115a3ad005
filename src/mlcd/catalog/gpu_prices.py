"""What an hour of one GPU costs where clouds rent it."""

from dataclasses import dataclass

from mlcd.catalog.catalog import Catalog
from mlcd.units import Usd


@dataclass(frozen=True, slots=True)
class GpuOffer:
    """The lowest on-demand price of one GPU, its share of a node's, and the type that has it."""

    usd_per_hour: Usd
    instance: str


def cheapest_gpu(catalog: Catalog, model: str) -> GpuOffer | None:
    """The cheapest offer of GPUs of this name, in any case; None if no cloud of the catalog has one."""
    offers = [
        (each.usd_per_hour.dollars / each.accelerators, each.name)
        for each in catalog.instances
        if each.accelerators and each.accelerator and each.accelerator.upper() == model.upper()
    ]
    if not offers:
        return None
    usd, name = min(offers)
    return GpuOffer(Usd.of(str(round(usd, 6))), name)
