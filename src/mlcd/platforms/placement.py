"""A node's place among the nodes of a job, and the processes that it runs.

The files of this folder run on the nodes: they import the standard library and each other only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Placement:
    """One node of a job.

    addresses  of all nodes, in the order of their ranks; on one machine all may be 127.0.0.1
    port       the first of PORTS consecutive ports that are free on every node
    topology   `ring` (all-reduce) or `ps` (parameter server)
    gpus       of each node; 0 for none
    server_nodes  of a server: over how many nodes it is spread
    """

    rank: int
    addresses: tuple[str, ...]
    port: int
    topology: str = "ring"
    gpus: int = 0
    server_nodes: int = 1

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.addresses)

    @property
    def own_address(self) -> str:
        """The address of this node; of the last one where not all are known."""
        return self.addresses[min(self.rank, len(self.addresses) - 1)]

    @property
    def head(self) -> str:
        """The address of rank 0."""
        return self.addresses[0]


@dataclass(frozen=True)
class Process:
    """One process that runs the user's command, with these variables in addition to the job's own.

    role       `worker`, `ps`, `chief`, `scheduler`, ...: in the log's name and in MLCD_ROLE
    essential  the node is done when its essential processes have ended; the others (servers) are ended then. A node
               without essential processes runs until the lease is released: other nodes decide when the job is done
    command    what it runs instead of the user's command
    prefix     a program and its arguments that starts the user's command, which follows them, when it can run
    """

    role: str = "worker"
    env: Mapping[str, str] = field(default_factory=dict)
    essential: bool = True
    command: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()


PORTS = 128
"""Number of consecutive ports, starting at `port`, that belong to the job: enough for all processes of a machine."""
