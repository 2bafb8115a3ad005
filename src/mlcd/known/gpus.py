"""GPUs by their data sheets: what a roofline of a language model needs."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSheet:
    """One GPU.

    tflops          dense peak of fp16 or bf16 with tensor cores (fp16 without them where there are none)
    gb_per_second   bandwidth of its memory
    link_gb_per_second  between two GPUs of one node: NVLink, both directions together; else PCIe
    """

    tflops: float
    gb_per_second: float
    memory_gib: float
    link_gb_per_second: float

    def __post_init__(self) -> None:
        if min(self.tflops, self.gb_per_second, self.memory_gib, self.link_gb_per_second) <= 0:
            raise ValueError("a GPU's figures must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The GPUs of one node."""

    gpu: GpuSheet
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("a machine needs at least one GPU")

    @property
    def flops(self) -> float:
        """Peak FLOP/s of all GPUs."""
        return self.gpu.tflops * 1e12 * self.count

    @property
    def bytes_per_second(self) -> float:
        """Bandwidth of all memories together."""
        return self.gpu.gb_per_second * 1e9 * self.count

    @property
    def memory_bytes(self) -> float:
        """Of all GPUs."""
        return self.gpu.memory_gib * 2**30 * self.count


def _gpu(tflops: float, gb_per_second: float, memory_gib: float, link_gb_per_second: float) -> GpuSheet:
    return GpuSheet(
        tflops=tflops, gb_per_second=gb_per_second, memory_gib=memory_gib, link_gb_per_second=link_gb_per_second
    )


GPUS: Mapping[str, GpuSheet] = {
    "K80": _gpu(4.1, 240, 12, 16),  # one of its two GPUs; no fp16: fp32. Tesla K80 board specification, 2015
    "M60": _gpu(4.8, 160, 8, 16),  # one of its two GPUs; fp32. Tesla M60 data sheet, 2016
    "P100": _gpu(21.2, 732, 16, 160),  # Tesla P100 data sheet (SXM2), 2016
    "V100": _gpu(125, 900, 16, 300),  # Tesla V100 data sheet (SXM2), 2018
    "V100-32GB": _gpu(125, 900, 32, 300),
    "T4": _gpu(65, 320, 16, 32),  # Tesla T4 data sheet, 2019; PCIe 3.0 x16
    "A10": _gpu(125, 600, 24, 64),  # A10 data sheet, 2021; PCIe 4.0 x16
    "A10G": _gpu(70, 600, 24, 64),  # AWS' variant, dense fp16: A10G data sheet, 2021
    "L4": _gpu(121, 300, 24, 64),  # L4 data sheet, 2023, without sparsity
    "L40S": _gpu(362, 864, 48, 64),  # L40S data sheet, 2023, without sparsity
    "A100": _gpu(312, 1555, 40, 600),  # A100 data sheet (SXM4), 2021
    "A100-80GB": _gpu(312, 2039, 80, 600),
    "H100": _gpu(989, 3350, 80, 900),  # H100 data sheet (SXM5), 2023, without sparsity
    "H200": _gpu(989, 4800, 141, 900),  # H200 data sheet, 2024
    "B200": _gpu(2250, 8000, 180, 1800),  # DGX B200 data sheet, 2024, of one GPU, without sparsity
}
"""NVIDIA's data sheets, by the names of the catalog's accelerators."""


def gpu_of(name: str) -> GpuSheet | None:
    """The GPU of this name, in any case; None if it is not known."""
    return {known.casefold(): gpu for known, gpu in GPUS.items()}.get(name.casefold())
