"""The processes below this one: find them, count their processor time, end them. Standard library only."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

TERM_GRACE_SECONDS = 2.0
"""Time between SIGTERM and SIGKILL."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Child(Protocol):
    """A started process: a Popen, or one forked from a warm worker."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code once it has one; negative for a signal."""
        ...

    def kill(self) -> None:
        """SIGKILL."""
        ...


def adopt_orphans() -> None:
    """Make orphans of the job children of this process, so that they can be found and ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_agent() -> None:
    """Called in a new process before its program starts: it is killed when the process that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def descendants() -> list[int]:
    """All descendants of this process, found through /proc; empty on systems without it."""
    return list(_with_starts())


def _with_starts() -> dict[int, str]:
    """When each descendant of this process started, as the system writes it: a later process has another start."""
    children: dict[int, list[tuple[int, str]]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        children.setdefault(int(fields[1]), []).append((int(stat.parent.name), fields[19]))
    found: dict[int, str] = {}
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found |= below
        todo += [pid for pid, _ in below]
    return found


def started_below() -> list[tuple[int, str]]:
    """(pid, start) of every descendant of this process, by asking each for its children: few files are read."""
    found, todo = [], [os.getpid()]
    while todo:
        for children in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            with suppress(OSError):
                for pid in map(int, children.read_text().split()):
                    todo.append(pid)
                    found.append((pid, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]))
    return found


def cpu_seconds() -> float:
    """Processor time of all descendants of this process, running or ended."""
    ticks = 0
    for pid in descendants():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(fields[i]) for i in (11, 12, 13, 14))
    ended = os.times()
    return ticks / os.sysconf("SC_CLK_TCK") + ended.children_user + ended.children_system


def end_all(started: Sequence[Child], *, grace_seconds: float = TERM_GRACE_SECONDS) -> None:
    """Send SIGTERM, then SIGKILL, to `started` and to every process below this one; returns when all have ended.

    Processes that became another user's (sudo) and may not be ended are not waited for.
    """
    until = time.monotonic() + grace_seconds
    sign = signal.SIGTERM
    refused: set[tuple[int, str]] = set()
    while True:
        alive = [child for child in started if child.poll() is None and not _is_in(child.pid, refused)]
        below = dict(_running(_with_starts()).items() - refused)
        if not alive and not below:
            return
        for child in alive:
            _signal_group(child.pid, sign)
        refused |= {(pid, start) for pid, start in below.items() if not _signal(pid, sign, start)}
        if time.monotonic() >= until:
            sign = signal.SIGKILL
        time.sleep(0.02)
        _reap()


def _is_in(pid: int, found: set[tuple[int, str]]) -> bool:
    return any(each == pid for each, _ in found)


def _running(found: Mapping[int, str]) -> dict[int, str]:
    return {pid: start for pid, start in found.items() if _start_of(pid) == start}


def _start_of(pid: int) -> str:
    """When a process started; "" where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _reap() -> None:
    """Collect adopted orphans, but not children that a Popen waits for."""
    for pid in descendants():
        try:
            if os.getpgid(pid) == pid:  # what was started here leads its own group: its Popen collects it
                continue
            os.waitpid(pid, os.WNOHANG)
        except (ChildProcessError, ProcessLookupError):
            continue


def _signal(pid: int, sign: signal.Signals, start: str = "") -> bool:
    """Send a signal to the process that started at `start`, never to a later one; returns whether that was allowed."""
    try:
        if not start or not hasattr(os, "pidfd_open"):
            os.kill(pid, sign)
            return True
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        except OSError:  # a kernel without it, or no descriptor is left
            if _start_of(pid) == start:
                os.kill(pid, sign)
            return True
        try:
            if _start_of(pid) == start:  # it holds for the descriptor too: it was opened before
                signal.pidfd_send_signal(descriptor, sign)
        finally:
            os.close(descriptor)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def _signal_group(pid: int, sign: signal.Signals) -> None:
    try:
        os.killpg(pid, sign)
    except (ProcessLookupError, PermissionError):
        _signal(pid, sign)
