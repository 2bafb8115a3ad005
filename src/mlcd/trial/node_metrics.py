"""What a cloud's own monitoring measured on the nodes of a lease."""

import math
from dataclasses import dataclass

MOST_BYTES = 1e18
"""The most that a node may have received or sent: a year at 30 GB/s."""
MOST_GPU_GIB = 1e6
MOST_SOURCE_CHARACTERS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetrics:
    """Means over the nodes of a lease, as the cloud's own monitoring reported them when the lease ended.

    Monitoring may be late, so the bytes are those that it had reported by then. None: it has not reported any.

    source          the name of the monitoring service
    nodes           number of nodes with data
    cpu_percent     mean utilisation of a node's processors, 0 to 100
    received_bytes  that a node received, over the lease
    sent_bytes      that a node sent, over the lease
    gpu_percent     mean share of the time in which a node's GPUs computed, 0 to 100
    gpu_memory_gib  the most that was in use of one GPU's memory
    """

    source: str
    nodes: int
    cpu_percent: float | None = None
    received_bytes: float | None = None
    sent_bytes: float | None = None
    gpu_percent: float | None = None
    gpu_memory_gib: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.source) <= MOST_SOURCE_CHARACTERS:
            raise ValueError(f"a monitoring service's name has 1 to {MOST_SOURCE_CHARACTERS} characters")
        if self.nodes < 1:
            raise ValueError("node metrics need at least one node")
        values = (self.cpu_percent, self.received_bytes, self.sent_bytes, self.gpu_percent, self.gpu_memory_gib)
        if all(value is None for value in values):
            raise ValueError("node metrics need at least one value")
        for name, value, most in (
            ("cpu_percent", self.cpu_percent, 100.0),
            ("received_bytes", self.received_bytes, MOST_BYTES),
            ("sent_bytes", self.sent_bytes, MOST_BYTES),
            ("gpu_percent", self.gpu_percent, 100.0),
            ("gpu_memory_gib", self.gpu_memory_gib, MOST_GPU_GIB),
        ):
            if value is not None and not (math.isfinite(value) and 0 <= value <= most):
                raise ValueError(f"{name} must be between 0 and {most:g}")
