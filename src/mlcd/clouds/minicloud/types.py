"""The instance types of this machine: shares of a core x bandwidths, each with a nominal price."""

import os

from mlcd.catalog import Instance
from mlcd.units import Usd

NAME = "minicloud"
RESERVED_CORES = 0.4
"""Reserved for the machine itself and mlcd: nodes that hold every core would measure each other's noise."""
RESERVED_GIB = 1.0
SPOT_SHARE = 0.35
"""The nominal spot price of a node, of its price on demand: about what clouds ask for."""
_MIN_CORES_FOR_LARGE_TYPES = 4

_SIZES = (
    # size, share of a core, GiB, USD per hour with 100 Mbit/s, USD per hour with 400 Mbit/s
    ("small", 0.125, 1.0, "1.00", "1.30"),
    ("large", 0.25, 1.5, "1.80", "2.40"),
    ("xlarge", 0.5, 2.0, "3.30", "4.50"),
    ("2xlarge", 1.0, 3.0, "6.00", "8.40"),
)
"""The prices are nominal: nobody is charged. They rise a little more slowly than the share, as cloud prices do, so that
a search has a trade-off to find. PyTorch takes about 0.3 GiB of a node's memory besides the model."""


def instance_types(cores: float) -> tuple[Instance, ...]:
    """The types a machine with that many cores offers; half and whole cores on machines with at least four."""
    return tuple(
        Instance(
            cloud=NAME,
            name=f"{family}.{size}",
            vcpus=share,
            memory_gib=gib,
            network_gbps=gbps,
            usd_per_hour=Usd.of(m_price if family == "m" else n_price),
            spot_usd_per_hour=Usd.of(m_price if family == "m" else n_price) * SPOT_SHARE,
        )
        for size, share, gib, m_price, n_price in _SIZES
        for family, gbps in (("m", 0.1), ("n", 0.4))
        if share < 0.5 or cores >= _MIN_CORES_FOR_LARGE_TYPES
    )


def machine_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0))


def machine_memory_gib() -> float:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def total_cores_for_nodes() -> float:
    """The cores available to all nodes of the machine together."""
    return machine_cores() - RESERVED_CORES


def total_gib_for_nodes() -> float:
    """The memory available to all nodes of the machine together."""
    return machine_memory_gib() - RESERVED_GIB
