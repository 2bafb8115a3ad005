"""The nodes of one lease while they are held."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcd.catalog import Instance
from mlcd.clouds.control_groups import END_SECONDS, joining, kill_all
from mlcd.clouds.exits import exit_file
from mlcd.clouds.minicloud.cgroup import Group, end_groups
from mlcd.clouds.minicloud.network import find_command, namespace_path, network_is_gone, processes_in, remove_network
from mlcd.clouds.minicloud.record import LeaseRecord, forget
from mlcd.clouds.nodes import NodesState, agent_command, create_stop_file
from mlcd.clouds.processes import resident_gib
from mlcd.clouds.provider import LeaseFailed
from mlcd.errors import ProviderError
from mlcd.home import job_environment
from mlcd.trial.trial import FailureKind
from mlcd.untrusted import last_line


class MiniNodes:
    """Nodes with their agents. All methods may be called from any thread."""

    def __init__(self, record: LeaseRecord, instance: Instance, folder: Path) -> None:
        self.record, self._instance, self._folder = record, instance, folder
        self._groups = tuple(Group(record.lease_id, str(rank)) for rank in range(record.count))
        self._agents: list[subprocess.Popen[bytes]] = []
        self._used_seconds = 0.0
        self._released = False
        self._lock = threading.RLock()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The nodes' addresses, by rank."""
        return tuple(self.record.address(rank) for rank in range(self.record.count))

    def start_agents(self, env: Mapping[str, str]) -> None:
        """Start one agent on each node, with `env` added to the node's variables. Raises OSError, ProviderError."""
        for rank, group in enumerate(self._groups):
            own = self._folder / f"node-{rank}"
            own.mkdir(parents=True, exist_ok=True)
            command = agent_command(self._folder, rank, self.addresses, lifeline="stdin")
            with (own / "agent.txt").open("ab") as output:
                self._agents.append(
                    subprocess.Popen(  # noqa: S603 - our own agent
                        node_command(self.record.lease_id, rank, group, command),
                        stdin=subprocess.PIPE,  # open as long as this process runs: the agent's lifeline
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env={**job_environment(), **node_environment(self.record.lease_id, group), **env},
                        start_new_session=True,
                    )
                )

    def state(self) -> NodesState:
        """As in Nodes. Out of memory is reported as soon as the kernel has killed a process of a node for it."""
        with self._lock:
            if self._released:
                return NodesState.ENDED
            for rank, group in enumerate(self._groups):
                if group.out_of_memory_kills():
                    raise self._failed(
                        FailureKind.OUT_OF_MEMORY,
                        f"node {rank} ran out of its {self._instance.memory_gib:g} GiB of memory",
                    )
            ended = [os.path.lexists(exit_file(self._folder, rank)) for rank in range(self.record.count)]
            if all(ended):
                return NodesState.ENDED
            for rank, has_ended in enumerate(ended):
                if not has_ended:
                    self._check_node(rank)
            return NodesState.RUNNING

    def ask_to_stop(self) -> None:
        """As in Nodes."""
        create_stop_file(self._folder)

    def used_seconds(self) -> float | None:
        """As in Nodes; still known after the release."""
        with self._lock:
            if not self._released:
                self._used_seconds = sum(group.used_seconds() for group in self._groups)
            return self._used_seconds

    def memory_gib(self, nodes: int | None = None) -> float:
        """See mlcd.clouds.nodes.MeasuresMemory: resident memory, without the agents."""
        agents = {agent.pid for agent in self._agents}
        return max(sum(resident_gib(pid) for pid in group.pids() - agents) for group in self._groups[:nodes])

    def release(self) -> None:
        """As in Nodes."""
        with self._lock:
            if self._released:
                return
            self.used_seconds()
            for agent in self._agents:
                agent.kill()  # an agent that has just started may not be in its groups yet
            end_lease(self.record.lease_id)
            self._released = True
            for agent in self._agents:
                agent.wait()
                if agent.stdin is not None:
                    agent.stdin.close()

    def _check_node(self, rank: int) -> None:
        """Raises LeaseFailed when a running node has lost its network or its agent."""
        if network_is_gone(self.record.lease_id, rank):
            raise self._failed(FailureKind.LOST, f"node {rank}'s network is gone")
        if self._agents[rank].poll() is not None and not os.path.lexists(exit_file(self._folder, rank)):
            output = last_line(self._folder / f"node-{rank}" / "agent.txt")
            last = f": {output}" if output else ""
            code = self._agents[rank].returncode
            raise self._failed(FailureKind.LOST, f"the agent of node {rank} ended (exit code {code}){last}")

    def _failed(self, kind: FailureKind, message: str) -> LeaseFailed:
        return LeaseFailed(kind, f"{message} ({self._instance.name}, {self.record.lease_id})", seconds=0.0)


def node_command(lease_id: str, rank: int, group: Group, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` as a process of a node: in its control groups and its namespace."""
    nsenter = find_command("nsenter")
    if nsenter is None:
        raise ProviderError("the command `nsenter` is missing: install it with `apt install util-linux`")
    enter = [nsenter, f"--net={namespace_path(lease_id, rank)}", *command]
    return in_groups(group, enter)


def in_groups(group: Group, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` in these control groups."""
    return joining(group.task_files, command)


def node_environment(lease_id: str, group: Group) -> dict[str, str]:
    """The variables of a node. One thread each: several would not use a share of a core any better."""
    python = str(Path(sys.executable).parent)
    return {
        "MLCD_LEASE": lease_id,
        "MLCD_CGROUPS": os.pathsep.join(group.task_files),
        "MLCD_SETUP_NETWORK": f"/proc/{os.getpid()}/ns/net",
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": os.pathsep.join((python, os.environ.get("PATH", os.defpath))),
    }


def end_lease(lease_id: str) -> None:
    """End and remove all that carries a lease's name, whoever created it. Raises ProviderError where that fails."""
    end_groups(lease_id)
    until = time.monotonic() + END_SECONDS
    while pids := processes_in(lease_id):  # those that joined a namespace on their own
        kill_all(pids)
        if time.monotonic() > until:
            raise ProviderError(f"{lease_id}: cannot end the processes {', '.join(map(str, sorted(pids)))}")
        time.sleep(0.01)
    remove_network(lease_id)
    forget(lease_id)
