"""The seam between a real job's lease and whatever gives it nodes: this machine, namespaces, Slurm, SkyPilot.

A lease has a folder on this machine. The lease writes there, before the nodes start:

    job.json          what each node's agent runs (mlcd.platforms.agent.Job)
    workdir/          a copy of the user's folder: where `setup` and `run` run
    checkpoint/       what the job goes on from, and saves to

and reads there, while they run:

    node-R/log.txt    output of node R (its setup and its processes)
    node-R/exit.json  how node R ended: {"code", "message", "kind", "cpu_seconds"}; absent while it runs
    progress.jsonl    what rank 0 reports: {"time", "samples"} or {"time", "checkpoint"} a line
    stop              made to ask the job to save and end

Nodes that share this machine's files use the folder itself; an engine whose nodes do not keeps it in step.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from mlcd.catalog import Instance

PREFIX = "mlcd-"
"""Everything mlcd starts anywhere has a name that begins so: `mlcd down` finds it by that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOrder:
    """Nodes for one lease.

    lease_id  PREFIX, the run's name and a random part: the tag on everything that is started
    seconds   after which every node ends itself, whether mlcd is heard of or not
    folder    the lease's folder, as above
    """

    lease_id: str
    instance: str
    count: int
    seconds: float
    folder: Path


class NodesState(StrEnum):
    """STARTING until the agent of every node runs; ENDED when every node wrote its exit.json or was given back."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class Nodes(Protocol):
    """The nodes of one lease, with the job's agent on each."""

    def state(self) -> NodesState:
        """How they are; quick, and brings the lease's folder up to date.

        Raises LeaseFailed when they could not be had (CAPACITY, unpaid; LAUNCH) or one of them went away (INTERRUPTED,
        LOST); its seconds are not looked at.
        """
        ...

    def ask_to_stop(self) -> None:
        """Ask the job to save and end, by the file `stop`; returns at once."""
        ...

    def used_seconds(self) -> float | None:
        """Processor seconds used by all nodes so far, where the engine can tell."""
        ...

    def release(self) -> None:
        """End everything and give the nodes back: idempotent, and nothing is left when it returns."""
        ...


@runtime_checkable
class Suspendable(Protocol):
    """Nodes that can be stopped and started again with the job on them."""

    def suspend(self) -> None:
        """The job stands still and uses no processor."""
        ...

    def resume(self) -> None:
        """It goes on."""
        ...


@runtime_checkable
class Closable(Protocol):
    """An engine that keeps something between leases: warm workers, a process of SkyPilot's."""

    def close(self) -> None:
        """Let it go; the next lease would start it again."""
        ...


@runtime_checkable
class RemoteFiles(Protocol):
    """Nodes that do not share this machine's files."""

    def fetch(self, paths: Sequence[str]) -> None:
        """Bring these paths of node 0's lease folder into the lease's folder here; what is not there is left out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something that mlcd started and that is still there.

    what   for the user: "2 processes", "namespace mlcd-...-0", "job 17"
    owned  a living mlcd process works with it
    """

    cloud: str
    lease_id: str
    what: str
    owned: bool = False


class NodeEngine(Protocol):
    """Who gives nodes. `name` is as in `resources.infra`; `noise` as in Cloud."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def noise(self) -> float: ...  # noqa: D102

    def offer(self) -> tuple[Instance, ...]:
        """The types that can be had here, with their prices. Raises ProviderError that says what is missing."""
        ...

    def most_nodes(self, instance: str) -> int | None:
        """How many nodes of a type can be had at once; None where only the provider knows."""
        ...

    def start(self, order: NodeOrder) -> Nodes:
        """Order the nodes and have the agent started on each; returns soon. Raises LeaseFailed, ProviderError."""
        ...

    def leftovers(self) -> tuple[Leftover, ...]:
        """All that mlcd ever started here and that still is there. Raises ProviderError."""
        ...

    def end(self, leftover: Leftover) -> None:
        """End it for good; nothing of it is left when this returns."""
        ...


def agent_command(folder: Path, rank: int | None = None, addresses: Sequence[str] = (), *, lifeline: str) -> list[str]:
    """The command that runs one node's agent, for engines whose nodes have this Python and this machine's files.

    rank, addresses  left out where the node knows them by SLURM_* or SKYPILOT_* variables
    lifeline         `stdin`: the agent ends the job when its standard input is closed (mlcd died); `file`: when
                     `folder/heartbeat` has not been touched for a minute; `none`: only when its seconds are over
    """
    command = [sys.executable, "-m", "mlcd.platforms.agent", str(folder), f"--lifeline={lifeline}"]
    if rank is not None:
        command += [f"--rank={rank}", f"--addresses={','.join(addresses)}"]
    return command
