"""A real Slurm cluster on this machine: one slurmctld, and a slurmd in each of several minicloud nodes.

For tests and benchmarks, as root on Linux:

    with slurm_cluster({"small": NodeKind(count=2, cpus=0.25), "large": NodeKind(count=2)}) as cluster:
        ...                                             # SLURM_CONF is set: sbatch, squeue, scancel work

Nodes of a kind are a partition of its name. Everything is stopped and removed at the end, failures included; what a
killed run left behind is ended by the next cluster, by the next lease on minicloud, or by `mlcd down`.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlcd.clouds.control_groups import kill_all
from mlcd.clouds.minicloud.cgroup import Group
from mlcd.clouds.minicloud.cloud import end_abandoned
from mlcd.clouds.minicloud.facilities import missing
from mlcd.clouds.minicloud.leased import end_lease, node_command
from mlcd.clouds.minicloud.network import free_subnet, limit, make_network, run_command
from mlcd.clouds.minicloud.record import LeaseRecord, link_tag, machine_lock, namespace_name, read_records
from mlcd.clouds.nodes import PREFIX

COMMANDS = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo", "scontrol")
TIMEOUT_SECONDS = 240.0
"""How long a cluster may take to start."""
INSTANCE = "slurm-cluster"
"""What the machine's record of leases calls the nodes of a cluster."""
FIRST_PORT = 17_001
"""Of the nodes' daemons: all have this machine's host name, so Slurm tells them apart by their ports."""


@dataclass(frozen=True, kw_only=True)
class NodeKind:
    """The nodes of one partition: how many, and what each has.

    cpus         share of the machine's processors; None without a limit
    max_minutes  the partition's limit for a job
    """

    count: int
    cpus: float | None = None
    memory_gib: float = 1.5
    mbit: float = 400.0
    max_minutes: int | None = None


@dataclass(frozen=True)
class Node:
    """One node: its name in Slurm, and which of the minicloud lease's nodes it is."""

    name: str
    rank: int
    address: str
    kind: NodeKind


@dataclass(frozen=True)
class Cluster:
    """A cluster that is up. `folder` holds its configuration and logs."""

    folder: Path
    conf: Path
    record: LeaseRecord
    partitions: Mapping[str, tuple[Node, ...]]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All of them, by rank."""
        return tuple(node for nodes in self.partitions.values() for node in nodes)

    def group(self, name: str) -> Group:
        """The control groups of a node: all that runs on it."""
        return Group(self.record.lease_id, str(next(node.rank for node in self.nodes if node.name == name)))

    def kill_node(self, name: str) -> None:
        """A node dies: everything on it is killed, its slurmd too."""
        kill_all(self.group(name).pids())


def why_not() -> str:
    """Why no cluster can be made here; "" where it can."""
    if lacks := [name for name in COMMANDS if shutil.which(name) is None]:
        return f"not installed: {', '.join(lacks)}; run scripts/setup-slurm"
    return "; ".join(missing())


@contextmanager
def slurm_cluster(kinds: Mapping[str, NodeKind]) -> Iterator[Cluster]:
    """A cluster with a partition of each kind's name. Raises RuntimeError with the daemons' logs when it stays down."""
    if reason := why_not():
        raise RuntimeError(reason)
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="mlcd-slurm-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        record, partitions = _nodes(kinds, folder, stack)
        conf = folder / "slurm.conf"
        controller = f"10.77.{record.subnet}.1"
        conf.write_text(_configuration(folder, controller, partitions), encoding="ascii")
        cluster = Cluster(folder, conf, record, partitions)
        stack.enter_context(_environment("SLURM_CONF", str(conf)))
        _start(cluster, stack)
        yield cluster


def _nodes(
    kinds: Mapping[str, NodeKind], folder: Path, stack: ExitStack
) -> tuple[LeaseRecord, dict[str, tuple[Node, ...]]]:
    """The machine's share for the cluster, as one minicloud lease with nodes of several kinds."""
    lease_id = f"{PREFIX}slurm-cluster-{secrets.token_hex(4)}"
    count = sum(kind.count for kind in kinds.values())
    with machine_lock():
        for old in read_records().values():
            if old.instance == INSTANCE and not old.owned:
                shutil.rmtree(old.folder, ignore_errors=True)
        end_abandoned()
        subnet = free_subnet(record.subnet for record in read_records().values())
        record = LeaseRecord(lease_id=lease_id, instance=INSTANCE, count=count, subnet=subnet, folder=str(folder))
        stack.callback(end_lease, lease_id)
        record.save()
        partitions: dict[str, tuple[Node, ...]] = {}
        rank = 0
        for name, kind in kinds.items():
            partitions[name] = tuple(
                Node(f"{name}{index}", rank + index, record.address(rank + index), kind) for index in range(kind.count)
            )
            rank += kind.count
            for node in partitions[name]:
                Group(lease_id, str(node.rank)).create(cpus=kind.cpus, memory_gib=kind.memory_gib)
    make_network(record, 1000.0)
    for nodes in partitions.values():
        for node in nodes:
            space = namespace_name(lease_id, node.rank)
            run_command("tc", "-n", space, *_changed(limit("eth0", node.kind.mbit)))
            run_command("tc", *_changed(limit(f"{link_tag(lease_id)}-{node.rank}", node.kind.mbit)))
    return record, partitions


def _changed(words: Sequence[str]) -> list[str]:
    return ["change" if word == "add" else word for word in words]


def _configuration(folder: Path, controller: str, partitions: Mapping[str, tuple[Node, ...]]) -> str:
    host = socket.gethostname()
    cpus = os.cpu_count() or 1
    lines = [
        "ClusterName=mlcdtest",
        f"SlurmctldHost={host}({controller})",
        f"SlurmctldPort={_free_port(controller)}",
        "AuthType=auth/none",
        "CredType=cred/none",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "JobAcctGatherType=jobacct_gather/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0",
        "SlurmdParameters=config_overrides",
        "SlurmUser=root",
        "SlurmdUser=root",
        "ReturnToService=2",
        "KillWait=5",
        "InactiveLimit=0",
        "SlurmdTimeout=5",
        f"StateSaveLocation={folder}/state",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmdLogFile={folder}/slurmd-%n.log",
    ]
    for name, nodes in partitions.items():
        lines += [
            f"NodeName={node.name} NodeHostname={host} NodeAddr={node.address} Port={FIRST_PORT + node.rank} "
            f"CPUs={cpus} RealMemory={round(node.kind.memory_gib * 1024)}"
            for node in nodes
        ]
        minutes = nodes[0].kind.max_minutes
        limit = "" if minutes is None else f" MaxTime={minutes}"
        lines.append(f"PartitionName={name} Nodes={','.join(node.name for node in nodes)} State=UP{limit}")
    return "\n".join(lines) + "\n"


def _start(cluster: Cluster, stack: ExitStack) -> None:
    (cluster.folder / "state").mkdir()
    daemons = [("slurmctld", _daemon(cluster, "slurmctld", "-D", "-c"))]
    stack.callback(_stop, daemons)
    # With the nodes' processes, so that it goes with them when this process is killed.
    controller = Group(cluster.record.lease_id, "controller")
    controller.create()
    for file in controller.task_files:
        Path(file).write_text(str(daemons[0][1].pid))
    for node in cluster.nodes:
        (cluster.folder / f"spool-{node.name}").mkdir()
        slurmd = ["slurmd", "-D", "-N", node.name]
        inside = node_command(cluster.record.lease_id, node.rank, cluster.group(node.name), slurmd)
        daemons.append((node.name, _daemon(cluster, *inside)))
    wanted = len(cluster.nodes)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        states = _states()
        if len(states) == wanted and set(states) == {"idle"}:
            return
        dead = [name for name, daemon in daemons if daemon.poll() is not None]
        if dead or time.monotonic() > deadline:
            logs = "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in cluster.folder.glob("*.log"))
            raise RuntimeError(f"the Slurm cluster is not up (ended: {dead}, states: {states})\n{logs}")
        time.sleep(0.1)


def _daemon(cluster: Cluster, *command: str) -> subprocess.Popen[bytes]:
    with (cluster.folder / "daemons.log").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def _states() -> list[str]:
    command = ("sinfo", "--noheader", "--Node", "--format=%T")
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False).stdout.split()


def _stop(daemons: list[tuple[str, subprocess.Popen[bytes]]]) -> None:
    for _, daemon in daemons:
        daemon.terminate()
    for _, daemon in daemons:
        try:
            daemon.wait(5)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
