"""A real Slurm cluster on this machine: one slurmctld, and a slurmd in a network namespace of its own for each node.

For tests and benchmarks, as root on Linux:

    with slurm_cluster({"small": NodeKind(count=2, cpu_share=0.3), "large": NodeKind(count=2)}) as cluster:
        ...                                             # SLURM_CONF is set: sbatch, squeue, scancel work

Nodes of a kind share a partition of its name. Everything is stopped and removed at the end, failures included; what a
killed run left behind is removed by the next `slurm_cluster` or `remove_all()`.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

COMMANDS = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo", "scontrol", "ip", "tc", "nsenter")
NAME = "mlcdslurm"
"""How everything of a cluster is named: namespaces, links (with their 15 characters), cgroups, folders."""
CGROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_MICROS = 20_000
MEMORY_MIB = 2048
PATIENCE = 60.0
"""Seconds until a cluster that does not come up is given up."""


@dataclass(frozen=True, kw_only=True)
class NodeKind:
    """Nodes of one partition: how many, the share of one CPU each has (None: no limit), and their bandwidth."""

    count: int
    cpu_share: float | None = None
    mbit: int | None = None
    max_minutes: int | None = None


@dataclass(frozen=True)
class Node:
    """One node: a namespace of this name, with an address that the others reach."""

    name: str
    namespace: str
    address: str
    port: int
    kind: NodeKind


@dataclass(frozen=True)
class Cluster:
    """A cluster that is up. `folder` holds its configuration and logs."""

    folder: Path
    conf: Path
    partitions: Mapping[str, tuple[Node, ...]]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All of them, in the order of their names."""
        return tuple(node for nodes in self.partitions.values() for node in nodes)

    def kill_node(self, name: str) -> None:
        """A node dies: everything in its namespace is killed, its slurmd first."""
        kill_all(next(node.namespace for node in self.nodes if node.name == name))


def why_not() -> str:
    """Why no cluster can be made here; "" where it can."""
    if os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "a Slurm cluster of namespaces needs root on Linux"
    if missing := [name for name in COMMANDS if shutil.which(name) is None]:
        return f"not installed: {', '.join(missing)}; run scripts/setup-slurm"
    return ""


@contextmanager
def slurm_cluster(kinds: Mapping[str, NodeKind]) -> Iterator[Cluster]:
    """A cluster with a partition of each kind's name. Raises RuntimeError with the daemons' logs when it stays down."""
    if reason := why_not():
        raise RuntimeError(reason)
    with ExitStack() as stack:
        tag = f"{NAME}{os.getpid()}"
        remove_all(only_dead=True)
        stack.callback(_remove, tag)
        folder = Path(tempfile.mkdtemp(prefix=f"{tag}-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        network = _free_network()
        _make_bridge(tag, network)
        partitions: dict[str, tuple[Node, ...]] = {}
        number = 0
        for name, kind in kinds.items():
            nodes = []
            for index in range(kind.count):
                node = Node(f"{name}{index}", f"{tag}n{number}", f"{network}.{number + 2}", 17_001 + number, kind)
                _make_node(tag, number, node)
                nodes.append(node)
                number += 1
            partitions[name] = tuple(nodes)
        conf = folder / "slurm.conf"
        conf.write_text(_configuration(folder, f"{network}.1", partitions), encoding="ascii")
        cluster = Cluster(folder, conf, partitions)
        stack.enter_context(_environment("SLURM_CONF", str(conf)))
        _start(cluster, stack)
        yield cluster


def remove_all(*, only_dead: bool = False) -> None:
    """Remove every cluster's namespaces, links, processes and cgroups; `only_dead`: those whose maker is gone."""
    tags = {_tag(name) for name in _namespaces() if name.startswith(NAME)}
    tags |= {_tag(path.name) for path in CGROUPS.glob(f"{NAME}*")}
    for tag in tags:
        maker = Path("/proc") / tag.removeprefix(NAME)
        if not (only_dead and maker.exists()):
            _remove(tag)
            for folder in Path(tempfile.gettempdir()).glob(f"{tag}-*"):
                shutil.rmtree(folder, ignore_errors=True)


def kill_all(namespace: str) -> None:
    """Kill every process of a namespace, the ones they start meanwhile too."""
    give_up = time.monotonic() + PATIENCE
    while pids := _run("ip", "netns", "pids", namespace, check=False).split():
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > give_up:
            raise RuntimeError(f"processes of {namespace} cannot be killed: {pids}")
        time.sleep(0.02)


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
        "SlurmdTimeout=10",
        f"StateSaveLocation={folder}/state",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmdLogFile={folder}/slurmd-%n.log",
    ]
    for name, nodes in partitions.items():
        lines += [
            f"NodeName={node.name} NodeHostname={host} NodeAddr={node.address} Port={node.port} "
            f"CPUs={cpus} RealMemory={MEMORY_MIB}"
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
    for node in cluster.nodes:
        (cluster.folder / f"spool-{node.name}").mkdir()
        enter = ("nsenter", f"--net=/var/run/netns/{node.namespace}", "--")
        daemons.append((node.name, _daemon(cluster, *enter, "slurmd", "-D", "-N", node.name, node=node)))
    wanted = len(cluster.nodes)
    give_up = time.monotonic() + PATIENCE
    while True:
        states = _run("sinfo", "--noheader", "--Node", "--format=%T", check=False).split()
        if len(states) == wanted and set(states) == {"idle"}:
            return
        dead = [name for name, daemon in daemons if daemon.poll() is not None]
        if dead or time.monotonic() > give_up:
            logs = "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in cluster.folder.glob("*.log"))
            raise RuntimeError(f"the Slurm cluster is not up (ended: {dead}, states: {states})\n{logs}")
        time.sleep(0.1)


def _daemon(cluster: Cluster, *command: str, node: Node | None = None) -> subprocess.Popen[bytes]:
    procs = None if node is None or node.kind.cpu_share is None else _cgroup(node.namespace) / "cgroup.procs"
    with (cluster.folder / "daemons.log").open("ab") as log:
        if procs is not None:  # the shell joins the node's cgroup, then becomes the daemon
            command = ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(procs), *command)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def _stop(daemons: list[tuple[str, subprocess.Popen[bytes]]]) -> None:
    for _, daemon in daemons:
        daemon.terminate()
    for _, daemon in daemons:
        try:
            daemon.wait(5)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _make_bridge(tag: str, network: str) -> None:
    _run("ip", "link", "add", _link(tag, "b"), "type", "bridge")
    _run("ip", "address", "add", f"{network}.1/24", "dev", _link(tag, "b"))
    _run("ip", "link", "set", _link(tag, "b"), "up")


def _make_node(tag: str, number: int, node: Node) -> None:
    outer, inner = _link(tag, f"v{number}"), _link(tag, f"w{number}")
    _run("ip", "netns", "add", node.namespace)
    _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
    _run("ip", "link", "set", inner, "netns", node.namespace, "name", "eth0")
    _run("ip", "link", "set", outer, "master", _link(tag, "b"), "up")
    for arguments in (
        ("address", "add", f"{node.address}/24", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("link", "set", "lo", "up"),
    ):
        _run("ip", "-n", node.namespace, *arguments)
    if node.kind.mbit is not None:
        shape = ("root", "tbf", "rate", f"{node.kind.mbit}mbit", "burst", "64kb", "latency", "50ms")
        _run("tc", "qdisc", "add", "dev", outer, *shape)
        _run("tc", "-n", node.namespace, "qdisc", "add", "dev", "eth0", *shape)
    if node.kind.cpu_share is not None:
        group = _cgroup(node.namespace)
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROS))
        (group / "cpu.cfs_quota_us").write_text(str(round(PERIOD_MICROS * node.kind.cpu_share)))


def _remove(tag: str) -> None:
    for namespace in _namespaces():
        if _tag(namespace) == tag:
            kill_all(namespace)
            _run("ip", "netns", "delete", namespace, check=False)
    for link in Path("/sys/class/net").glob(f"{_link(tag, '')}*"):
        _run("ip", "link", "delete", link.name, check=False)
    for group in CGROUPS.glob(f"{tag}n*"):
        _remove_cgroup(group)


def _remove_cgroup(group: Path) -> None:
    """A cgroup can be removed once the kernel has let go of its last, killed process."""
    give_up = time.monotonic() + PATIENCE
    while group.exists():
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)


def _namespaces() -> list[str]:
    folder = Path("/var/run/netns")
    return sorted(path.name for path in folder.glob(f"{NAME}*")) if folder.exists() else []


def _tag(namespace: str) -> str:
    return NAME + namespace.removeprefix(NAME).partition("n")[0]


def _cgroup(namespace: str) -> Path:
    return CGROUPS / namespace


def _link(tag: str, end: str) -> str:
    """A link's name has 15 characters at most."""
    return f"ms{tag.removeprefix(NAME)}{end}"


def _free_network() -> str:
    """The first three parts of a /24 that no link of this machine uses."""
    used = _run("ip", "-4", "-o", "address")
    first = os.getpid()  # two processes that look at the same time do not find the same
    networks = (f"10.213.{(first + step) % 254 + 1}" for step in range(254))
    return next(network for network in networks if f" {network}." not in used)


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


def _run(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
