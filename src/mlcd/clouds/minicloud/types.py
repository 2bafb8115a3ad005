"""What can be leased on this machine: a share of a core times a bandwidth, each with a nominal price."""

import os

from mlcd.catalog import Instance
from mlcd.units import Usd

NAME = "minicloud"
SPARE_CORES = 0.4
"""Left to the machine itself and to mlcd: nodes that hold every core would measure each other's noise."""
SPARE_GIB = 1.0
_MANY_CORES = 4

_SIZES = (
    # size, share of a core, GiB, USD per hour with 100 Mbit/s, USD per hour with 400 Mbit/s
    ("small", 0.125, 1.0, "1.00", "1.30"),
    ("large", 0.25, 1.5, "1.80", "2.40"),
    ("xlarge", 0.5, 2.0, "3.30", "4.50"),
    ("2xlarge", 1.0, 3.0, "6.00", "8.40"),
)
"""The prices are nominal: nobody is charged. They rise a little slower than the share, as those of clouds do, so that
a search has something to weigh. PyTorch takes about 0.3 GiB of a node's memory before the model."""


def instance_types(cores: float) -> tuple[Instance, ...]:
    """The types a machine with that many cores offers; half and whole cores from four cores on."""
    return tuple(
        Instance(
            cloud=NAME,
            name=f"{family}.{size}",
            vcpus=share,
            memory_gib=gib,
            network_gbps=gbps,
            usd_per_hour=Usd.of(m_price if family == "m" else n_price),
        )
        for size, share, gib, m_price, n_price in _SIZES
        for family, gbps in (("m", 0.1), ("n", 0.4))
        if share < 0.5 or cores >= _MANY_CORES
    )


def machine_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0))


def machine_memory_gib() -> float:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def total_cores_for_nodes() -> float:
    """What all nodes of the machine may have together."""
    return machine_cores() - SPARE_CORES


def total_gib_for_nodes() -> float:
    """What all nodes of the machine may have together."""
    return machine_memory_gib() - SPARE_GIB
