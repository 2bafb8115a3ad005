"""The control groups (version 1) of one node: CPU quota, memory limit and CPU accounting."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mlcd.clouds.control_groups import END_SECONDS, kill_all, mounts, pids_in, remove, write_if_exists
from mlcd.clouds.minicloud.types import NAME
from mlcd.clouds.nodes import PREFIX
from mlcd.errors import ProviderError

CONTROLLERS = ("cpu", "cpuacct", "memory")
FAMILY = PREFIX + NAME
PERIOD_US = 20_000
"""The quota's period. The default of 100 ms stalls a node for too long at a time, which makes step times uneven."""
CPU_WEIGHT = 100_000
"""CPU weight of all nodes together (a process usually has 1,024): other load must not reduce a node's share."""


@cache
def mounted_controllers() -> dict[str, Path]:
    """Where each version 1 controller is mounted; those that are not mounted are omitted."""
    return {option: folder for folder, options in mounts("cgroup") for option in options if option in CONTROLLERS}


@dataclass(frozen=True, slots=True)
class Group:
    """The control groups of one node of a lease; `part` is its rank, or a name for what is not a node."""

    lease_id: str
    part: str

    def folder(self, controller: str) -> Path:
        """The group's folder of one controller."""
        return mounted_controllers()[controller] / FAMILY / self.lease_id / self.part

    @property
    def folders(self) -> tuple[Path, ...]:
        """The group's folders of all controllers; some machines mount cpu and cpuacct together."""
        return tuple(dict.fromkeys(self.folder(controller) for controller in mounted_controllers()))

    @property
    def task_files(self) -> tuple[str, ...]:
        """A process that writes 0 (or its pid) into each of these joins the node, and so do its children."""
        return tuple(str(folder / "cgroup.procs") for folder in self.folders)

    def create(self, *, cpus: float | None = None, memory_gib: float | None = None) -> None:
        """Create the groups with these limits. Raises OSError."""
        for folder in self.folders:
            _create(folder)
        if cpus is not None:
            cpu = self.folder("cpu")
            (cpu.parents[1] / "cpu.shares").write_text(str(CPU_WEIGHT))
            (cpu / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (cpu / "cpu.cfs_quota_us").write_text(str(round(cpus * PERIOD_US)))
        if memory_gib is not None:
            memory = self.folder("memory")
            limit = str(round(memory_gib * 2**30))
            (memory / "memory.limit_in_bytes").write_text(limit)
            with_swap = memory / "memory.memsw.limit_in_bytes"
            if with_swap.exists():  # else a machine with swap would swap instead of running out of memory
                with_swap.write_text(limit)

    def pids(self) -> set[int]:
        """The processes in the group."""
        return {pid for folder in self.folders for pid in pids_in(folder)}

    def used_seconds(self) -> float:
        """CPU seconds used in the group so far; 0 when it no longer exists."""
        try:
            return int((self.folder("cpuacct") / "cpuacct.usage").read_text()) / 1e9
        except FileNotFoundError:
            return 0.0

    def out_of_memory_kills(self) -> int:
        """How many of its processes the kernel killed for lack of memory; 0 when the group no longer exists."""
        try:
            lines = (self.folder("memory") / "memory.oom_control").read_text().splitlines()
        except FileNotFoundError:
            return 0
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def groups_of(lease_id: str) -> tuple[Group, ...]:
    """The lease's groups that exist in any controller."""
    return tuple(Group(lease_id, part) for part in sorted(_children(lease_id)))


def leases_with_groups() -> set[str]:
    """The leases that have a control group, of any mlcd process."""
    return {lease_id for lease_id in _children("") if lease_id.startswith(PREFIX)}


def allocated_cores() -> float:
    """The total CPU quota of all nodes on this machine, in cores."""
    total = 0.0
    for file in (mounted_controllers()["cpu"] / FAMILY).glob("*/*/cpu.cfs_quota_us"):
        try:
            quota, period = int(file.read_text()), int(file.with_name("cpu.cfs_period_us").read_text())
        except OSError:  # released while we looked
            continue
        total += max(quota, 0) / period
    return total


def allocated_gib() -> float:
    """The total memory limit of all nodes on this machine, in GiB; groups without a limit are not nodes."""
    total = 0
    for file in (mounted_controllers()["memory"] / FAMILY).glob("*/*/memory.limit_in_bytes"):
        try:
            limit = int(file.read_text())
        except OSError:
            continue
        total += limit if limit < 2**60 else 0
    return total / 2**30


def end_groups(lease_id: str) -> None:
    """End every process of a lease and remove its control groups. Raises ProviderError where that fails."""
    groups = groups_of(lease_id)
    deadline = time.monotonic() + END_SECONDS
    while not _end_once(groups, lease_id):  # repeat: a process may be joining just now
        if time.monotonic() > deadline:
            pids = sorted(pid for group in groups for pid in group.pids())
            what = f"end the processes {', '.join(map(str, pids))}" if pids else "remove the control groups"
            raise ProviderError(f"{lease_id}: cannot {what}; try `mlcd down` again")
        time.sleep(0.01)


def _end_once(groups: Iterable[Group], lease_id: str) -> bool:
    """Kill and remove once; returns whether everything is gone."""
    for group in groups:
        if pids := group.pids():
            # A process that has used up its quota is slow to end.
            write_if_exists(group.folder("cpu") / "cpu.cfs_quota_us", "-1")
            kill_all(pids)
    parents = [mount / FAMILY / lease_id for mount in set(mounted_controllers().values())]
    removed = [remove(folder) for group in groups for folder in group.folders]
    removed += [remove(parent) for parent in parents]
    for parent in parents:
        family = parent.parent
        if family.is_dir() and not any(child.is_dir() for child in family.iterdir()):
            remove(family)
    return all(removed)


def _create(folder: Path) -> None:
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:  # another mlcd removed the empty family between the parent and the child
            if not folder.parents[2].is_dir():
                raise
        else:
            return


def _children(lease_id: str) -> set[str]:
    found = set()
    for mount in set(mounted_controllers().values()):
        parent = mount / FAMILY / lease_id if lease_id else mount / FAMILY
        if parent.is_dir():
            found |= {child.name for child in parent.iterdir() if child.is_dir()}
    return found
