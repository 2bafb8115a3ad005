"""The interface between a real job's lease and what provides its nodes: this machine, namespaces, Slurm, SkyPilot.

A lease has a folder on this machine. The lease writes there, before the nodes start:

    job.json          what each node's agent runs (mlcd.platforms.agent.Job)
    workdir/          a copy of the user's folder: where `setup` and `run` run
    checkpoint/       the checkpoint the job continues from; it saves new ones here

and reads there, while they run:

    node-R/address    where the other nodes, and mlcd, reach node R
    node-R/log.txt    output of node R (its setup and its processes)
    node-R/exit.json  how node R ended: {"code", "message", "kind", "cpu_seconds"}; absent while it runs
    progress.jsonl    what rank 0 reports: {"time", "samples"} or {"time", "checkpoint"} a line
    stop              created to ask the job to save and end

Jobs can write all of these: they are read with limits (mlcd.untrusted), and a malformed one ends the lease.

Nodes that share this machine's files use the folder itself. An engine whose nodes do not must synchronise it.

Everything in that folder may have been written by the job. What mlcd itself relies on to end a lease, or to leave
another process's lease alone, is in its own records ($MLCD_HOME/leases, clouds/lease_records.py).
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from mlcd.catalog import Instance
from mlcd.trial.node_metrics import NodeMetrics

PREFIX = "mlcd-"
"""The prefix of the name of everything that mlcd starts, by which `mlcd down` finds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOrder:
    """A request for the nodes of one lease.

    lease_id  PREFIX, the run's name and a random part: the tag on everything that is started
    seconds   after which every node ends itself, even if mlcd is gone
    folder    the lease's folder, as above
    spot      whether these nodes are of the spot market, where that is chosen for each configuration
    """

    lease_id: str
    instance: str
    count: int
    seconds: float
    folder: Path
    spot: bool = False


class NodesState(StrEnum):
    """STARTING until the agent runs on every node; ENDED when every node wrote its exit.json or was given back."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class Nodes(Protocol):
    """The nodes of one lease, with the job's agent on each."""

    def state(self) -> NodesState:
        """The current state; returns quickly, and brings the lease's folder up to date.

        Raises LeaseFailed when the nodes could not be obtained (CAPACITY, unpaid; LAUNCH) or one of them is gone
        (INTERRUPTED, LOST). Callers ignore the `seconds` of that error.
        """
        ...

    def ask_to_stop(self) -> None:
        """Ask the job to save and end, through the file `stop`; returns at once."""
        ...

    def used_seconds(self) -> float | None:
        """CPU seconds used by all nodes so far; None where the engine cannot measure them."""
        ...

    def release(self) -> None:
        """End everything and give the nodes back. Idempotent; nothing is running when it returns."""
        ...


@runtime_checkable
class Closable(Protocol):
    """An engine that keeps something between leases: warm workers, a SkyPilot process."""

    def close(self) -> None:
        """Close it; the next lease would start it again."""
        ...


@runtime_checkable
class Monitored(Protocol):
    """Nodes that the cloud's own monitoring service watches."""

    def node_metrics(self) -> NodeMetrics | None:
        """What it reported, once the nodes are released; None where it has nothing. Raises Malformed, OSError."""
        ...


@runtime_checkable
class MeasuresMemory(Protocol):
    """Nodes whose memory the engine can measure."""

    def memory_gib(self, nodes: int | None = None) -> float:
        """Memory of the processes of the node that uses most now, of all or of the first `nodes`."""
        ...


@runtime_checkable
class RemoteFiles(Protocol):
    """Nodes that do not share this machine's files."""

    def fetch(self, paths: Sequence[str]) -> None:
        """Copy these paths of node 0's lease folder into the lease's folder here; missing ones are skipped."""
        ...


@runtime_checkable
class Tunnelled(Protocol):
    """Nodes whose addresses mean nothing on this machine."""

    def reach(self, rank: int, address: str, port: int) -> str | None:
        """`HOST:PORT` on this machine, from where connections go to node `rank`; None before the nodes run.

        address  of the node, as it knows itself. Raises LeaseFailed where the way to it ended.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something that mlcd started and that still exists.

    what   for the user: "2 processes", "namespace mlcd-...-0", "job 17"
    owned  whether a running mlcd process uses it
    """

    cloud: str
    lease_id: str
    what: str
    owned: bool = False


@runtime_checkable
class Sweeping(Protocol):
    """An engine that keeps something of a killed mlcd's leases even when none of their processes runs."""

    def sweep(self) -> None:
        """End and forget all leases that no running mlcd holds; never raises for one that cannot be ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Unproved:
    """Something that may belong to a lease and is not proved to: `mlcd down` lists it and leaves it alone.

    what    for the user: "pid 17 (sleep 600)", or a record's file
    reason  why it is listed
    run_id, pid  where known
    """

    cloud: str
    lease_id: str
    what: str
    reason: str
    run_id: str = ""
    pid: int | None = None


@runtime_checkable
class ListsUnproved(Protocol):
    """An engine that cannot always prove what belongs to its leases."""

    def unproved(self) -> tuple[Unproved, ...]:
        """What may be mlcd's and is neither among `leftovers` nor ever ended."""
        ...


class NodeEngine(Protocol):
    """A provider of nodes. `name` is as in `resources.infra`; `noise` as in Cloud."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def noise(self) -> float: ...  # noqa: D102

    def offer(self) -> tuple[Instance, ...]:
        """The instance types available here, with their prices. Raises ProviderError that states what is missing."""
        ...

    def most_nodes(self, instance: str) -> int | None:
        """The most nodes of a type available at once; None where only the provider knows."""
        ...

    def start(self, order: NodeOrder) -> Nodes:
        """Order the nodes and start the agent on each; does not wait for them. Raises LeaseFailed, ProviderError."""
        ...

    def leftovers(self) -> tuple[Leftover, ...]:
        """Everything that mlcd ever started here and that still exists. Raises ProviderError."""
        ...

    def end(self, leftover: Leftover) -> None:
        """End it; nothing of it exists when this returns."""
        ...


def create_stop_file(folder: Path) -> None:
    """Create the file `stop` in a lease's folder. Raises OSError, also where the job has put a link or a FIFO there."""
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    os.close(os.open(folder / "stop", flags, 0o600))


def agent_command(folder: Path, rank: int | None = None, addresses: Sequence[str] = (), *, lifeline: str) -> list[str]:
    """The command that runs one node's agent, for engines whose nodes have this Python and this machine's files.

    rank, addresses  omitted where the node knows them from SLURM_* or SKYPILOT_* variables
    lifeline         when the agent ends the job early. `stdin`: when its standard input is closed (mlcd died); `file`:
                     when `folder/heartbeat` has not changed for a minute; `none`: only when its time is over
    """
    command = [sys.executable, "-m", "mlcd.platforms.agent", str(folder), f"--lifeline={lifeline}"]
    if rank is not None:
        command += [f"--rank={rank}", f"--addresses={','.join(addresses)}"]
    return command
