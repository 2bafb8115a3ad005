"""The control groups of the nodes of this machine, in whichever version it has them (hierarchy.py)."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mlcd.clouds.control_groups import END_SECONDS, groups_in, pids_in, remove, tree_of
from mlcd.clouds.minicloud.hierarchy import hierarchy
from mlcd.clouds.minicloud.types import NAME
from mlcd.clouds.nodes import PREFIX
from mlcd.errors import ProviderError

FAMILY = PREFIX + NAME
_TRIES = 100


@dataclass(frozen=True, slots=True)
class Group:
    """The control groups of one node of a lease; `part` is its rank, or a name for what is not a node."""

    lease_id: str
    part: str

    @property
    def node(self) -> Path:
        """Its path below every root."""
        return Path(FAMILY, self.lease_id, self.part)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Its folders, below every root."""
        return tuple(root / self.node for root in hierarchy().roots)

    @property
    def task_files(self) -> tuple[str, ...]:
        """A process that writes 0 (or its pid) into each of these joins the node, and so do its children."""
        return tuple(str(folder / "cgroup.procs") for folder in self.folders)

    def create(self, *, cpus: float | None = None, memory_gib: float | None = None) -> None:
        """Create the groups with these limits. Raises OSError."""
        for tries_left in reversed(range(_TRIES)):
            try:
                hierarchy().create(self.node)
            except FileNotFoundError:  # another mlcd removed the empty family between the parent and the child
                if not tries_left:
                    raise
            else:
                break
        hierarchy().limit(self.node, cpus=cpus, memory_gib=memory_gib)

    def pids(self) -> set[int]:
        """The processes in the group, and in groups that they created below it."""
        return {pid for folder in self.folders for below in tree_of(folder) for pid in pids_in(below)}

    def used_seconds(self) -> float:
        """CPU seconds used in the group so far; 0 when it no longer exists."""
        return hierarchy().used_seconds(self.node)

    def out_of_memory_kills(self) -> int:
        """How many of its processes the kernel killed for lack of memory; 0 when the group no longer exists."""
        return hierarchy().out_of_memory_kills(self.node)


def groups_of(lease_id: str) -> tuple[Group, ...]:
    """The lease's groups that exist in any controller."""
    return tuple(Group(lease_id, part) for part in sorted(_children(lease_id)))


def leases_with_groups() -> set[str]:
    """The leases that have a control group, of any mlcd process."""
    return {lease_id for lease_id in _children("") if lease_id.startswith(PREFIX)}


def allocated_cores() -> float:
    """The total CPU quota of all nodes on this machine, in cores."""
    return sum(cores for cores, _ in _limits())


def allocated_gib() -> float:
    """The total memory limit of all nodes on this machine, in GiB; groups without a limit are not nodes."""
    return sum(gib for _, gib in _limits())


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
        hierarchy().kill(group.node)
    parents = [root / FAMILY / lease_id for root in hierarchy().roots]
    removed = [
        remove(below)
        for group in groups
        for folder in group.folders
        for below in sorted(tree_of(folder), reverse=True)  # what a job created below it, first
    ]
    removed += [remove(parent) for parent in parents]
    for parent in parents:
        if not groups_in(parent.parent):
            remove(parent.parent)
    return all(removed)


def _limits() -> list[tuple[float, float]]:
    return [
        hierarchy().limits(Path(FAMILY, lease_id, part)) for lease_id in _children("") for part in _children(lease_id)
    ]


def _children(lease_id: str) -> set[str]:
    found: set[str] = set()
    for root in hierarchy().roots:
        found |= groups_in(root / FAMILY / lease_id if lease_id else root / FAMILY)
    return found
