"""Linux's control groups, versions 2 and 1: limits on the processor and memory of a node, and what it used.

A node is a path such as mlcd-minicloud/LEASE/0 below each of a hierarchy's roots: version 2 has one root for
everything, version 1 one for each controller. https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Protocol

from mlcd.clouds.control_groups import kill_all, mounts, pids_in, tree_of, write_if_exists

CONTROLLERS = ("cpu", "cpuacct", "memory")
"""Of version 1; version 2 accounts for CPU time without a controller."""
CONTROLLERS_2 = ("cpu", "memory")
PERIOD_US = 20_000
"""The quota's period. The default of 100 ms stalls a node for too long at a time, which makes step times uneven."""
SHARES, WEIGHT = 100_000, 10_000
"""CPU weight of all nodes together, of version 1 (a group usually has 1,024) and 2 (usually 100): about a hundredfold,
so that other load does not reduce a node's share."""
_UNLIMITED_BYTES = 2**60


class Hierarchy(Protocol):
    """One version of the control groups. `node` is a path below the roots; one that is gone has used nothing.

    version  1 or 2
    roots    the mounted folders
    """

    version: int
    roots: tuple[Path, ...]

    def create(self, node: Path) -> None:
        """Create the node's groups. Raises OSError; FileNotFoundError where a parent was removed meanwhile."""
        ...

    def limit(self, node: Path, *, cpus: float | None, memory_gib: float | None) -> None:
        """Limit all processes of the node together; None limits nothing. Raises OSError."""
        ...

    def limits(self, node: Path) -> tuple[float, float]:
        """(cores, GiB) that the node is limited to; 0 where it is not limited, or gone."""
        ...

    def used_seconds(self, node: Path) -> float:
        """CPU seconds that the node used so far."""
        ...

    def out_of_memory_kills(self, node: Path) -> int:
        """How many of its processes the kernel killed for lack of memory."""
        ...

    def kill(self, node: Path) -> None:
        """SIGKILL to all its processes; one that is joining just now may escape, so repeat it until all are gone."""
        ...


class Version2:
    """The unified hierarchy, as distributions mount it since about 2021."""

    version = 2

    def __init__(self, root: Path) -> None:
        self.roots: tuple[Path, ...] = (root,)

    def create(self, node: Path) -> None:
        """See Hierarchy. Every parent passes the controllers on; processes are in the last group only."""
        (root,) = self.roots
        folder = root
        for name in node.parts:
            control = folder / "cgroup.subtree_control"
            lacking = [each for each in CONTROLLERS_2 if each not in control.read_text().split()]
            for each in lacking:
                control.write_text(f"+{each}")
            folder /= name
            folder.mkdir(exist_ok=True)

    def limit(self, node: Path, *, cpus: float | None, memory_gib: float | None) -> None:
        """See Hierarchy."""
        folder = self.roots[0] / node
        if cpus is not None:
            (self.roots[0] / node.parts[0] / "cpu.weight").write_text(str(WEIGHT))
            (folder / "cpu.max").write_text(f"{round(cpus * PERIOD_US)} {PERIOD_US}")
        if memory_gib is not None:
            (folder / "memory.max").write_text(str(round(memory_gib * 2**30)))
            write_if_exists(folder / "memory.swap.max", "0")

    def limits(self, node: Path) -> tuple[float, float]:
        """See Hierarchy."""
        folder = self.roots[0] / node
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        limit = _read(folder / "memory.max")
        cores = int(quota) / int(period) if quota.isdigit() else 0.0
        return cores, int(limit) / 2**30 if limit.isdigit() else 0.0

    def used_seconds(self, node: Path) -> float:
        """See Hierarchy."""
        return _numbers(self.roots[0] / node / "cpu.stat").get("usage_usec", 0) / 1e6

    def out_of_memory_kills(self, node: Path) -> int:
        """See Hierarchy."""
        return _numbers(self.roots[0] / node / "memory.events").get("oom_kill", 0)

    def kill(self, node: Path) -> None:
        """See Hierarchy. Without cgroup.kill (before Linux 5.14) they are frozen first: none forks meanwhile."""
        folder = self.roots[0] / node
        if (folder / "cgroup.kill").exists():
            write_if_exists(folder / "cgroup.kill", "1")
            return
        write_if_exists(folder / "cgroup.freeze", "1")
        kill_all(pid for below in tree_of(folder) for pid in pids_in(below))
        write_if_exists(folder / "cgroup.freeze", "0")


class Version1:
    """One hierarchy for each controller; some machines mount cpu and cpuacct together."""

    version = 1

    def __init__(self, mounted: dict[str, Path]) -> None:
        self._mounted = mounted
        self.roots = tuple(dict.fromkeys(mounted.values()))

    def create(self, node: Path) -> None:
        """See Hierarchy."""
        for root in self.roots:
            (root / node).mkdir(parents=True, exist_ok=True)

    def limit(self, node: Path, *, cpus: float | None, memory_gib: float | None) -> None:
        """See Hierarchy."""
        if cpus is not None:
            cpu = self._mounted["cpu"]
            (cpu / node.parts[0] / "cpu.shares").write_text(str(SHARES))
            (cpu / node / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (cpu / node / "cpu.cfs_quota_us").write_text(str(round(cpus * PERIOD_US)))
        if memory_gib is not None:
            memory = self._mounted["memory"] / node
            limit = str(round(memory_gib * 2**30))
            (memory / "memory.limit_in_bytes").write_text(limit)
            # With swap: else a machine that has some would swap instead of running out of memory.
            write_if_exists(memory / "memory.memsw.limit_in_bytes", limit)

    def limits(self, node: Path) -> tuple[float, float]:
        """See Hierarchy."""
        quota = _read(self._folder("cpu", node) / "cpu.cfs_quota_us")
        period = _read(self._folder("cpu", node) / "cpu.cfs_period_us")
        limit = _read(self._folder("memory", node) / "memory.limit_in_bytes")
        cores = max(int(quota), 0) / int(period) if quota and period else 0.0
        return cores, int(limit) / 2**30 if limit and int(limit) < _UNLIMITED_BYTES else 0.0

    def used_seconds(self, node: Path) -> float:
        """See Hierarchy."""
        return int(_read(self._folder("cpuacct", node) / "cpuacct.usage") or 0) / 1e9

    def out_of_memory_kills(self, node: Path) -> int:
        """See Hierarchy."""
        return _numbers(self._folder("memory", node) / "memory.oom_control").get("oom_kill", 0)

    def kill(self, node: Path) -> None:
        """See Hierarchy. A process that has used up its quota is slow to end, so the quota ends first."""
        pids = {pid for root in self.roots for below in tree_of(root / node) for pid in pids_in(below)}
        if pids:
            write_if_exists(self._folder("cpu", node) / "cpu.cfs_quota_us", "-1")
            kill_all(pids)

    def _folder(self, controller: str, node: Path) -> Path:
        return self._mounted.get(controller, Path("/nonexistent")) / node


@cache
def hierarchy() -> Hierarchy:
    """What nodes of this machine use: version 2 where it has the controllers, else version 1 as far as mounted."""
    return next(_usable_2(), None) or Version1(mounted_controllers())


def mounted_controllers() -> dict[str, Path]:
    """Where each version 1 controller is mounted; those that are not mounted are omitted."""
    return {option: folder for folder, options in mounts("cgroup") for option in options if option in CONTROLLERS}


def _usable_2() -> Iterator[Hierarchy]:
    """Version 2, where the kernel has not given its controllers to version 1."""
    for root, _ in mounts("cgroup2"):
        if set(CONTROLLERS_2) <= set(_read(root / "cgroup.controllers").split()):
            yield Version2(root)


def _read(file: Path) -> str:
    """What a file of a group says; "" where the group is gone, or was released while we looked."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _numbers(file: Path) -> dict[str, int]:
    """A file of lines such as `oom_kill 2`."""
    pairs = (line.partition(" ") for line in _read(file).splitlines())
    return {name: int(number) for name, _, number in pairs if number.strip().isdigit()}
