"""Control groups of this machine, versions 1 and 2: every process that joins one is found, whatever it does later.

A child joins with its parent, so a daemon that left its session and emptied its environment is still in the group.
`minicloud` limits its nodes with them (clouds/minicloud/cgroup.py); `local` only keeps track of its processes, where
this user may create groups: as root, or in a subtree of version 2 that belongs to the user.
"""

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

END_SECONDS = 20.0
"""How long ending the processes of a group may take."""
TRACKING_CONTROLLERS = ("freezer", "cpuacct")
"""Controllers of version 1 that keep track of processes and of their CPU time, and limit nothing."""
_HELD_AT_ONCE = 100
"""Processes that are held by descriptors while they are killed."""
_GONE = (errno.ENOENT, errno.ENODEV)
"""Errors of files of a group that is removed while it is used: before and after the file was opened."""
_MOUNTS = Path("/proc/mounts")
_OWN = Path("/proc/self/cgroup")
_JOIN_AND_RUN = """
while [ "$1" != -- ]; do echo 0 > "$1" || exit 70; shift; done
shift
exec "$@"
"""
"""Shell code that joins the control groups named before `--`, then becomes the command after it: the command never runs
outside them, and no Python code runs between fork and exec."""


def joining(task_files: Sequence[str], command: Sequence[str]) -> list[str]:
    """The command line that joins these groups and becomes `command`: the same process, with the same pid."""
    return ["/bin/sh", "-c", _JOIN_AND_RUN, "sh", *task_files, "--", *command]


def mounts(kind: str) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """(folder, options) of each mount of `kind`: cgroup (version 1) or cgroup2."""
    if not _MOUNTS.exists():  # not Linux
        return
    for line in _MOUNTS.read_text().splitlines():
        _, folder, found, options, *_ = line.split()
        if found == kind:
            yield Path(folder), tuple(options.split(","))


@cache
def tracking_parents() -> tuple[Path, ...]:
    """Groups below which this process may create groups and have its children join them; empty where it may not.

    Version 2 where possible, else TRACKING_CONTROLLERS of version 1. Found by trying it once, with a process.
    """
    for parents in (_parents_v2(), _parents_v1()):
        if parents and _can_join(parents):
            return parents
    return ()


@dataclass(frozen=True, slots=True)
class TrackingGroup:
    """The groups that all processes of one lease are in: one of version 2, or one for each controller of version 1."""

    folders: tuple[Path, ...]

    @staticmethod
    def named(name: str) -> "TrackingGroup | None":
        """The groups of this name, yet to be created; None where this process may not create groups."""
        parents = tracking_parents()
        return TrackingGroup(tuple(parent / name for parent in parents)) if parents else None

    @property
    def task_files(self) -> tuple[str, ...]:
        """A process that writes 0 into each of these joins, and so do its children."""
        return tuple(str(folder / "cgroup.procs") for folder in self.folders)

    def create(self) -> None:
        """Create the groups. Raises OSError."""
        for folder in self.folders:
            folder.mkdir(exist_ok=True)

    def pids(self) -> set[int]:
        """The processes in the group and in groups that they created below it."""
        return {pid for folder in self.folders for below in tree_of(folder) for pid in pids_in(below)}

    def used_seconds(self) -> float | None:
        """CPU seconds used in the group so far; None where it is gone or the system does not report it."""
        for folder in self.folders:
            with suppress(OSError, ValueError):
                if (usage := folder / "cpuacct.usage").exists():
                    return int(usage.read_text()) / 1e9
                for line in (folder / "cpu.stat").read_text().splitlines():
                    name, _, number = line.partition(" ")
                    if name == "usage_usec":
                        return int(number) / 1e6
        return None

    def end(self, *, seconds: float = END_SECONDS) -> set[int]:
        """End every process of the group and remove it; returns those that could not be ended within `seconds`.

        What is paused is killed too. An empty group that the system keeps a little longer is left to it.
        """
        until = time.monotonic() + seconds
        while True:
            for folder in self.folders:
                for below in tree_of(folder):
                    write_if_exists(below / "freezer.state", "THAWED")
                    write_if_exists(below / "cgroup.freeze", "0")
            self._kill()
            gone = [remove(below) for folder in self.folders for below in sorted(tree_of(folder), reverse=True)]
            if all(gone) or time.monotonic() >= until:
                return self.pids()
            time.sleep(0.01)

    def _kill(self) -> None:
        """SIGKILL to all, without a pid where the system can (version 2): a pid may be another process's by then."""
        pids = self.pids()
        if os.getpid() not in pids and len(self.folders) == 1 and (self.folders[0] / "cgroup.kill").exists():
            write_if_exists(self.folders[0] / "cgroup.kill", "1")
        else:
            kill_members(pids, self.pids)


def pids_in(folder: Path) -> set[int]:
    """The processes of one group; empty where the group is gone. Raises OSError."""
    try:
        return {pid for pid in map(int, (folder / "cgroup.procs").read_text().split()) if pid > 0}
    except OSError as error:
        if error.errno in (*_GONE, errno.EOPNOTSUPP):  # or a threaded group, whose processes its parent lists
            return set()
        raise


def kill_members(pids: Iterable[int], members: Callable[[], set[int]]) -> None:
    """Send SIGKILL to those of `pids` that are still in a group whose processes `members` reads; not to this one.

    A process that ended meanwhile may have left its pid to a stranger. So each is held by a descriptor before the group
    is read again: what is in it then is the process that is held, or that one has ended and is sent nothing.
    """
    if not hasattr(os, "pidfd_open"):  # not Linux, where there are no groups either
        kill_all(set(pids) & members())
        return
    waiting = sorted(set(pids) - {os.getpid()})
    for at in range(0, len(waiting), _HELD_AT_ONCE):
        held: dict[int, int] = {}
        try:
            for pid in waiting[at : at + _HELD_AT_ONCE]:
                try:
                    held[pid] = os.pidfd_open(pid)
                except ProcessLookupError:
                    continue
                except OSError:  # a kernel without it, or no descriptor is left
                    kill_all({pid} & members())
            for pid in held.keys() & members():
                with suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(held[pid], signal.SIGKILL)
        finally:
            for descriptor in held.values():
                os.close(descriptor)


def kill_all(pids: Iterable[int]) -> None:
    """Send SIGKILL; processes that have already ended, and this one, are ignored."""
    for pid in pids:
        if pid != os.getpid():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def write_if_exists(file: Path, text: str) -> None:
    """Write to a file of a group that another process may be removing, or has removed in part. Raises OSError."""
    try:
        if file.exists():  # opening for writing would try to create it
            file.write_text(text)
    except OSError as error:
        if error.errno not in _GONE:
            raise


def groups_in(folder: Path) -> set[str]:
    """The names of the groups directly below a group; empty where it is gone, also while it is looked at."""
    try:
        return {child.name for child in folder.iterdir() if child.is_dir()}
    except FileNotFoundError:
        return set()


def remove(folder: Path) -> bool:
    """Remove an empty group; returns whether it is gone, False while something is in it. Raises OSError."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.ENOTEMPTY):
            return False
        raise
    return True


def tree_of(folder: Path) -> list[Path]:
    """The group and all groups below it; empty where it is gone."""
    return [Path(found) for found, _, _ in os.walk(folder)]


def _parents_v2() -> tuple[Path, ...]:
    own = _own_paths().get("")
    return tuple(_below(mount, own) for mount, _ in mounts("cgroup2"))[:1] if own is not None else ()


def _parents_v1() -> tuple[Path, ...]:
    own = _own_paths()
    found: dict[str, Path] = {}
    for mount, options in mounts("cgroup"):
        for controller in TRACKING_CONTROLLERS:
            if controller in options and controller in own:
                found[controller] = _below(mount, own[controller])
    return tuple(dict.fromkeys(found.values())) if len(found) == len(TRACKING_CONTROLLERS) else ()


def _own_paths() -> dict[str, str]:
    """The groups of this process, by controller of version 1; "" is version 2."""
    try:
        lines = _OWN.read_text().splitlines()
    except OSError:  # not Linux
        return {}
    found: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), path)
    return found


def _below(mount: Path, own: str) -> Path:
    """The group `own` under the mount; the mount itself where a container sees only a part of the tree."""
    folder = mount / own.lstrip("/")
    return folder if folder.is_dir() else mount


def _can_join(parents: Sequence[Path]) -> bool:
    group = TrackingGroup(tuple(parent / f"mlcd-probe-{os.getpid()}" for parent in parents))
    try:
        group.create()
        command = joining(group.task_files, ["/bin/sh", "-c", ":"])
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 - a shell
        return done.returncode == 0
    except OSError:
        return False
    finally:
        with suppress(OSError):
            group.end(seconds=1.0)
