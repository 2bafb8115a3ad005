"""The processes below this one: find them, count their processor time, end them. Standard library only."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
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
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it has just ended
            continue
        parent = int(text.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(stat.parent.name))
    found, todo = [], [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
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


def end_all(started: Sequence[Child]) -> None:
    """Send SIGTERM, then SIGKILL, to `started` and to every process below this one; returns when all have ended."""
    until = time.monotonic() + TERM_GRACE_SECONDS
    sign = signal.SIGTERM
    while True:
        alive = [child for child in started if child.poll() is None]
        below = _running(descendants())
        if not alive and not below:
            return
        for child in alive:
            _signal_group(child.pid, sign)
        for pid in below:
            _signal(pid, sign)
        if time.monotonic() >= until:
            sign = signal.SIGKILL
        time.sleep(0.02)
        _reap()


def _running(pids: Sequence[int]) -> list[int]:
    living = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            living.append(pid)
    return living


def _reap() -> None:
    """Collect adopted orphans, but not children that a Popen waits for."""
    for pid in descendants():
        try:
            if os.getpgid(pid) == pid:  # what was started here leads its own group: its Popen collects it
                continue
            os.waitpid(pid, os.WNOHANG)
        except (ChildProcessError, ProcessLookupError):
            continue


def _signal(pid: int, sign: signal.Signals) -> None:
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return


def _signal_group(pid: int, sign: signal.Signals) -> None:
    try:
        os.killpg(pid, sign)
    except (ProcessLookupError, PermissionError):
        _signal(pid, sign)
