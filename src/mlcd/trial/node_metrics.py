"""What a cloud's own monitoring measured on the nodes of a lease."""

import math
from dataclasses import dataclass

MOST_BYTES = 1e18
"""The most that a node may have received or sent: a year at 30 GB/s."""
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
    """

    source: str
    nodes: int
    cpu_percent: float | None = None
    received_bytes: float | None = None
    sent_bytes: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.source) <= MOST_SOURCE_CHARACTERS:
            raise ValueError(f"a monitoring service's name has 1 to {MOST_SOURCE_CHARACTERS} characters")
        if self.nodes < 1:
            raise ValueError("node metrics need at least one node")
        if self.cpu_percent is None and self.received_bytes is None and self.sent_bytes is None:
            raise ValueError("node metrics need at least one value")
        for name, value, most in (
            ("cpu_percent", self.cpu_percent, 100.0),
            ("received_bytes", self.received_bytes, MOST_BYTES),
            ("sent_bytes", self.sent_bytes, MOST_BYTES),
        ):
            if value is not None and not (math.isfinite(value) and 0 <= value <= most):
                raise ValueError(f"{name} must be between 0 and {most:g}")
