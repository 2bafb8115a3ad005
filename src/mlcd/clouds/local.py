"""`local`: nodes are processes of this machine, each pinned to its own CPUs and GPUs. Needs no root; on any system."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mlcd.catalog import Instance
from mlcd.clouds import processes
from mlcd.clouds.exits import exit_file, read_exit
from mlcd.clouds.gpu_sampler import GpuSampler
from mlcd.clouds.gpu_share import WHOLE, on_share
from mlcd.clouds.gpu_types import GpuType, gpu_price, gpu_types, price_of
from mlcd.clouds.local_leases import LocalLeases
from mlcd.clouds.nodes import Leftover, NodeOrder, Nodes, NodesState, Unproved, agent_command, create_stop_file
from mlcd.clouds.provider import LeaseFailed
from mlcd.gpus import Gpu, can_share, find_gpus
from mlcd.home import job_environment
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd
from mlcd.untrusted import Malformed

USD_PER_CPU_HOUR = 0.0425
"""Nominal, so that time can be traded against money: a c5 vCPU's on-demand price (the catalog's c5.xlarge)."""

AGENT_END_SECONDS = 3.0
"""How long the agents may take to end their jobs, which takes 2 s if those ignore SIGTERM; then all are killed."""
NETWORK_GBPS = 20.0
"""Nominal, for loopback: about what gloo moves between two processes of one machine."""


class Local:
    """Types are `local.N`: nodes with N CPUs; and `local.MODEL.N`: nodes with N GPUs, `local.MODEL.50p`: half of one.

    At most as many nodes at once as the machine has CPUs and GPUs for.
    """

    name = "local"
    noise = 0.08
    """An estimate for an idle machine: pinned nodes of the minicloud, where it was measured, differ by 0.11."""

    shares_this_machine = True
    """Other programs on it slow its nodes down."""

    def __init__(
        self,
        home: Path,
        cpus: tuple[int, ...] | None = None,
        gpus: tuple[Gpu, ...] | None = None,
        prices: Mapping[str, Usd] | None = None,
    ) -> None:
        self.home = home
        self.cpus = usable_cpus() if cpus is None else cpus
        self.gpus = find_gpus() if gpus is None else gpus
        self._prices = prices or {}
        self._gpu_types = {
            kind.name: kind for kind in gpu_types(self.gpus, len(self.cpus), shares=bool(self.gpus) and can_share())
        }
        self.leases = LocalLeases(home, self.name)
        self._taken: dict[str, _Taken] = {}
        self._lock = threading.Lock()
        self._swept = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know: where the price of its GPUs is from, and records of leases that were skipped."""
        models = {gpu.model: gpu for gpu in self.gpus}
        priced = [note for gpu in models.values() if (note := gpu_price(gpu, self._prices)[1])]
        return *priced, *(
            f"{problem.source}: {problem.problem}; it was skipped, and `mlcd down` lists it"
            for problem in self.leases.records.all()[1].values()
        )

    def offer(self) -> tuple[Instance, ...]:
        """Types with 1, 2, 4, ... CPUs a node, and with all of them; the same of GPUs, and shares of one."""
        count = len(self.cpus)
        sizes = sorted({2**power for power in range(count.bit_length()) if 2**power <= count} | {count})
        memory = _memory_gib() / count
        plain = tuple(
            Instance(
                cloud=self.name,
                name=f"local.{size}",
                vcpus=size,
                memory_gib=memory * size,
                network_gbps=NETWORK_GBPS,
                usd_per_hour=Usd.of(str(round(USD_PER_CPU_HOUR * size, 6))),
            )
            for size in sizes
        )
        return (*plain, *(self._gpu_instance(kind, memory) for kind in self._gpu_types.values()))

    def _gpu_instance(self, kind: GpuType, memory_gib_per_cpu: float) -> Instance:
        host = Usd.of(str(round(USD_PER_CPU_HOUR * kind.cpus, 6)))
        return Instance(
            cloud=self.name,
            name=kind.name,
            vcpus=kind.cpus,
            memory_gib=memory_gib_per_cpu * kind.cpus,
            network_gbps=NETWORK_GBPS,
            usd_per_hour=price_of(kind, gpu_price(kind.gpus[0], self._prices)[0], host),
            accelerator=kind.gpus[0].model,
            accelerators=kind.count,
            accelerator_tflops=kind.tflops,
            accelerator_memory_gib=kind.memory_gib,
        )

    def most_nodes(self, instance: str) -> int:
        """As many as can have their own CPUs and GPUs; of shares of a GPU only one."""
        kind = self._gpu_types.get(instance)
        by_cpus = len(self.cpus) // self._cpus_of(instance)
        if kind is None:
            return by_cpus
        return min(by_cpus, 1 if kind.percent < WHOLE else len(kind.gpus) // kind.count)

    def _cpus_of(self, instance: str) -> int:
        kind = self._gpu_types.get(instance)
        return int(instance.removeprefix("local.")) if kind is None else kind.cpus

    def gpus_of(self, instance: str) -> float:
        """GPUs of a type, as a job file counts them: 0 of one with processors only, 0.5 of half a GPU."""
        kind = self._gpu_types.get(instance)
        return 0.0 if kind is None else kind.amount

    def start(self, order: NodeOrder) -> Nodes:
        """Start one agent per node. Raises LeaseFailed when the machine's CPUs are taken.

        The first start ends what killed mlcd processes left running: it would take CPU time from these nodes.
        """
        if not self._swept:
            self._swept = True
            self.sweep()
        cpus = self._take_cpus(order)
        gpus = self._taken[order.lease_id].gpus if order.lease_id in self._taken else ()
        size, kind = self._cpus_of(order.instance), self._gpu_types.get(order.instance)
        each = 0 if kind is None else kind.count
        places = [
            _Place(
                cpus=cpus[i * size : (i + 1) * size],
                gpus=gpus[i * each : (i + 1) * each],
                percent=WHOLE if kind is None else kind.percent,
            )
            for i in range(order.count)
        ]
        try:
            return LocalNodes(self, order, places)
        except OSError as error:
            self._release(order.lease_id)
            raise LeaseFailed(FailureKind.LAUNCH, f"a node did not start: {error}", seconds=0.0) from error

    def leftovers(self) -> tuple[Leftover, ...]:
        """The leases of this home of which a process runs."""
        return self.leases.leftovers()

    def sweep(self) -> None:
        """See mlcd.clouds.nodes.Sweeping: also removes the empty control groups of ended leases."""
        self.leases.end_abandoned()

    def unproved(self) -> tuple[Unproved, ...]:
        """See mlcd.clouds.nodes.ListsUnproved."""
        return self.leases.unproved()

    def end(self, leftover: Leftover) -> None:
        """End its processes. Raises ProviderError naming those that cannot be ended."""
        self.leases.end(leftover.lease_id)

    def _take_cpus(self, order: NodeOrder) -> tuple[int, ...]:
        wanted = order.count * self._cpus_of(order.instance)
        with self._lock:
            gpus = self._free_gpus(order)
            taken = {cpu for each in self._taken.values() for cpu in each.cpus}
            free = [cpu for cpu in self.cpus if cpu not in taken]
            if wanted > len(free):
                problem = (
                    f"{order.count} x {order.instance} need {wanted} CPUs; {len(free)} of this machine's"
                    f" {len(self.cpus)} are free"
                )
                # Retry what only a concurrent trial leaves no room for; never what exceeds the machine.
                kind = FailureKind.CAPACITY if wanted > len(self.cpus) else FailureKind.LAUNCH
                raise LeaseFailed(kind, problem, seconds=0.0, billed=False)
            self._taken[order.lease_id] = _Taken(cpus=tuple(free[:wanted]), gpus=gpus)
            return self._taken[order.lease_id].cpus

    def _free_gpus(self, order: NodeOrder) -> tuple[Gpu, ...]:
        """GPUs for an order while the lock is held. Raises LeaseFailed where too few are free."""
        kind = self._gpu_types.get(order.instance)
        if kind is None:
            return ()
        taken = {gpu.uuid for each in self._taken.values() for gpu in each.gpus}
        free = [gpu for gpu in kind.gpus if gpu.uuid not in taken]
        wanted = order.count * kind.count
        if wanted > len(free):
            problem = f"{order.count} x {order.instance} need {wanted} GPUs; {len(free)} of {len(kind.gpus)} are free"
            reason = FailureKind.CAPACITY if wanted > len(kind.gpus) else FailureKind.LAUNCH
            raise LeaseFailed(reason, problem, seconds=0.0, billed=False)
        return tuple(free[:wanted])

    def _release(self, lease_id: str) -> None:
        with self._lock:
            self._taken.pop(lease_id, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """What a lease holds."""

    cpus: tuple[int, ...]
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What a node has: its CPUs, its GPUs, and how many percent of a single GPU."""

    cpus: tuple[int, ...]
    gpus: tuple[Gpu, ...] = ()
    percent: int = WHOLE


class LocalNodes:
    """The agents of one lease, each with a pipe that closes when mlcd dies."""

    def __init__(self, engine: Local, order: NodeOrder, places: list[_Place]) -> None:
        self.engine, self.order = engine, order
        self._sampler = GpuSampler([gpu for place in places for gpu in place.gpus], nodes=order.count)
        self.agents: list[subprocess.Popen[bytes]] = []
        self.held = engine.leases.hold(order.lease_id, order.folder)
        addresses = ["127.0.0.1"] * order.count
        try:
            for rank, place in enumerate(places):
                command = agent_command(order.folder, rank, addresses, lifeline="stdin")
                if self.held.group is None:
                    command.append("--note-processes")
                env = _environment(len(place.cpus))
                if place.percent < WHOLE:
                    command, env = on_share(command, env, gpu=place.gpus[0], percent=place.percent)
                elif engine.gpus:  # a node without GPUs must not use those of others
                    env["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in place.gpus)
                with (order.folder / f"node-{rank}" / "agent.txt").open("ab") as errors:
                    agent = self.held.start(
                        command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.DEVNULL,
                        stderr=errors,
                        env=env,
                    )
                self.agents.append(agent)
                if hasattr(os, "sched_setaffinity"):
                    os.sched_setaffinity(agent.pid, place.cpus)  # before it starts anything: the job inherits it
            self._sampler.start()
        except BaseException:  # Ctrl-C too: nobody else knows these agents
            self.release()
            raise

    def state(self) -> NodesState:
        """See mlcd.clouds.nodes.Nodes."""
        gone = [rank for rank, agent in enumerate(self.agents) if agent.poll() is not None]
        for rank in gone:
            if not os.path.lexists(exit_file(self.order.folder, rank)):  # what is there is read by the lease
                problem = f"the agent of node {rank} was ended from outside"
                raise LeaseFailed(FailureKind.LOST, problem, seconds=0.0)
        if len(gone) == len(self.agents):
            return NodesState.ENDED
        running = all((self.order.folder / f"node-{r}" / "agent.pid").exists() for r in range(self.order.count))
        return NodesState.RUNNING if running else NodesState.STARTING

    def node_metrics(self) -> NodeMetrics | None:
        """See mlcd.clouds.nodes.Monitored: of the GPUs; None without any."""
        return self._sampler.metrics()

    def ask_to_stop(self) -> None:
        """See mlcd.clouds.nodes.Nodes."""
        create_stop_file(self.order.folder)

    def used_seconds(self) -> float | None:
        """See mlcd.clouds.nodes.Nodes: of the lease's control group, else of what ended nodes and processes report."""
        counted = self.held.used_seconds()
        if counted is not None:
            return counted
        total, reported = 0.0, 0
        for rank in range(self.order.count):
            with suppress(OSError, Malformed):
                end = read_exit(self.order.folder, rank)
                if end is not None and end.cpu_seconds is not None:
                    total += end.cpu_seconds
                    reported += 1
        if reported == self.order.count:
            return total
        alive = self.held.pids()
        return total + sum(map(processes.cpu_seconds, alive)) if alive else None

    def release(self) -> None:
        """See mlcd.clouds.nodes.Nodes. Raises ProviderError naming what cannot be ended."""
        self._sampler.stop()
        for agent in self.agents:
            if agent.poll() is None:
                agent.terminate()
                agent.send_signal(signal.SIGCONT)  # the job may have stopped it
        until = time.monotonic() + AGENT_END_SECONDS
        for agent in self.agents:
            with suppress(subprocess.TimeoutExpired):
                agent.wait(timeout=max(until - time.monotonic(), 0.0))
            if agent.stdin:
                agent.stdin.close()
        try:
            self.held.close(grace_seconds=0.0)  # the agents have asked already
        finally:
            self.engine._release(self.order.lease_id)
        for agent in self.agents:
            agent.poll()


def usable_cpus() -> tuple[int, ...]:
    """The CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def job_path() -> str:
    """PATH of jobs on this machine: `python` is mlcd's own unless the job changes it."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def _environment(threads: int) -> dict[str, str]:
    env = job_environment() | {"PATH": job_path()}
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        env[name] = str(threads)
    # Waiting threads should sleep: on a busy machine, spinning threads slow each other down tenfold.
    env.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if sys.platform == "linux":
        env["GLOO_SOCKET_IFNAME"] = "lo"
    return env


def _memory_gib() -> float:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError, AttributeError):  # the system does not report it
        return 8.0
