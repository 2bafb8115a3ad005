"""Where a node stands among the others, and what it runs there.

The files of this folder run on the nodes: they use the standard library only, and of mlcd nothing but each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Placement:
    """One node of a job.

    addresses  of all nodes, in the order of their ranks; on one machine all may be 127.0.0.1
    port       the first of PORTS that are free on every node
    topology   `ring` (all-reduce) or `ps` (parameter server)
    gpus       of each node, 0 without any
    """

    rank: int
    addresses: tuple[str, ...]
    port: int
    topology: str = "ring"
    gpus: int = 0

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.addresses)

    @property
    def head(self) -> str:
        """The address of rank 0."""
        return self.addresses[0]


@dataclass(frozen=True)
class Process:
    """The user's command once more, with these variables besides the job's own.

    role       `worker`, `ps`, `chief`, `scheduler`, ...: in the log's name and in MLCD_ROLE
    essential  the node has ended when its essential processes have; the others (servers) are ended then. A node
               without any runs until the lease is released: it is the other nodes that tell when the job is done
    """

    role: str = "worker"
    env: Mapping[str, str] = field(default_factory=dict)
    essential: bool = True


PORTS = 128
"""How many ports from `port` on belong to the job: enough for every process of one machine."""
