"""Types of `local` that have GPUs: so many of one model, or a share of one, with their part of the processors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlcd.catalog import load_catalog
from mlcd.catalog.gpu_prices import cheapest_gpu
from mlcd.gpus import Gpu
from mlcd.known.gpus import gpu_of
from mlcd.units import Usd

GPU_PRICE = "local.gpu"
"""Its name in `resources.prices`: USD per hour of one whole GPU of this machine."""
UNKNOWN_GPU_USD_PER_HOUR = 1.0
"""Of a GPU that is in no catalog: nominal, so that numbers and shares of it can be compared."""
SHARES = (25, 50)
"""Percent of a GPU that are offered as types of their own, where the multi-process service is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """One type.

    percent  of a single GPU; 100: whole GPUs, `count` of them
    cpus     of this machine's processors, in proportion
    """

    name: str
    gpus: tuple[Gpu, ...]
    count: int
    percent: int = 100
    cpus: int = 1

    @property
    def amount(self) -> float:
        """GPUs, as a job file counts them."""
        return self.count * self.percent / 100

    @property
    def memory_gib(self) -> float:
        """Of one GPU, or of its share."""
        return min(gpu.memory_gib for gpu in self.gpus) * self.percent / 100

    @property
    def tflops(self) -> float:
        """Peak of one GPU, or of its share, by its data sheet; 0 if it is not known."""
        sheet = gpu_of(self.gpus[0].model)
        return 0.0 if sheet is None else sheet.tflops * self.percent / 100


def gpu_types(gpus: Sequence[Gpu], cpus: int, *, shares: bool) -> tuple[GpuType, ...]:
    """1, 2, 4, ... and all GPUs of each model; with `shares`, also parts of one: `local.h200.2`, `local.h200.50p`."""
    by_model: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        by_model.setdefault(gpu.model, []).append(gpu)
    found = []
    for model, alike in by_model.items():
        word = "".join(letter for letter in model.lower() if letter.isalnum()) or "gpu"
        for percent in SHARES if shares else ():
            each = max(1, cpus * percent // 100 // len(gpus))
            name = f"local.{word}.{percent}p"
            found.append(GpuType(name=name, gpus=tuple(alike), count=1, percent=percent, cpus=each))
        whole = len(alike)
        for count in sorted({2**power for power in range(whole.bit_length()) if 2**power <= whole} | {whole}):
            each = max(1, cpus * count // len(gpus))
            found.append(GpuType(name=f"local.{word}.{count}", gpus=tuple(alike), count=count, cpus=each))
    return tuple(found)


def gpu_price(gpu: Gpu, prices: Mapping[str, Usd]) -> tuple[Usd, str]:
    """(USD per hour of the whole GPU, a note on where that is from): the job's price, else the catalog's lowest."""
    own = prices.get(GPU_PRICE)
    if own is not None:
        return own, ""
    offer = cheapest_gpu(load_catalog(), gpu.model)
    if offer is None:
        nominal = Usd.of(str(UNKNOWN_GPU_USD_PER_HOUR))
        return nominal, f"no price of a {gpu.name} is known: {nominal} an hour; set resources.prices.{GPU_PRICE}"
    said = f"an hour of the {gpu.name} counts {offer.usd_per_hour}, as on {offer.instance}"
    return offer.usd_per_hour, f"{said}; resources.prices.{GPU_PRICE} sets another"


def price_of(kind: GpuType, whole: Usd, host: Usd) -> Usd:
    """USD per hour of the type: its GPUs, or its share of one, and the host's part."""
    return Usd.of(str(round(host.dollars + whole.dollars * kind.amount, 6)))


def counts_text(gpus: Sequence[Gpu]) -> str:
    """`8 x NVIDIA H200 with 140 GiB, driver 580.1`; "" without GPUs."""
    seen: dict[tuple[str, int, str], int] = {}
    for gpu in gpus:
        key = (gpu.name, math.floor(gpu.memory_gib), gpu.driver)
        seen[key] = seen.get(key, 0) + 1
    return ", ".join(f"{n} x {name} with {gib} GiB, driver {driver}" for (name, gib, driver), n in seen.items())
