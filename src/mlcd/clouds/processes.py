"""Processes on this machine that carry a lease's name: found, told apart from later ones with the same pid, ended."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

TAG = "MLCD_LEASE"
"""The environment variable that every process of a lease carries."""
EXEC_SECONDS = 1.0
"""How long to wait for a process in the middle of exec(); exec() takes less than a millisecond of CPU time."""
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of linux/sched.h, in field 9 of /proc/PID/stat


def started_at(pid: int) -> str:
    """When the process started, as the system writes it; "" where it does not run. With the pid it is unique."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] == "Z" else fields[19]
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607
    return found.stdout.strip()


def is_alive(pid: int, start: str) -> bool:
    """Whether the process `pid` that started at `start` still runs."""
    return bool(start) and started_at(pid) == start


def tagged(lease_id: str) -> list[int]:
    """Running processes that carry the lease's name; none are found on systems without /proc."""
    return all_tagged().get(lease_id, [])


def all_tagged() -> dict[str, list[int]]:
    """Running processes that carry any lease's name, by lease; none are found on systems without /proc."""
    found: dict[str, list[int]] = {}
    for environ in Path("/proc").glob("[0-9]*/environ"):
        pid = int(environ.parent.name)
        variables = _variables(pid)
        if pid == os.getpid() or not started_at(pid):
            continue
        for variable in variables:
            name, _, lease_id = variable.partition(b"=")
            if name == TAG.encode() and lease_id:
                found.setdefault(lease_id.decode(errors="replace"), []).append(pid)
    return found


def _variables(pid: int) -> list[bytes]:
    """The environment of a process; empty where the process is gone or belongs to another user.

    During exec() the system shows an empty environment for a moment. This waits for such a process, which would be
    missed otherwise.
    """
    until = time.monotonic() + EXEC_SECONDS
    file = Path(f"/proc/{pid}/environ")
    try:
        text, may_come = file.read_bytes(), True
        while not text and may_come:
            may_come = _has_no_environment_yet(pid) and time.monotonic() < until
            text = file.read_bytes()  # after the check: they may have been set meanwhile
            if not text and may_come:
                time.sleep(0.001)
    except OSError:
        return []
    return text.split(b"\0") if text else []


def _has_no_environment_yet(pid: int) -> bool:
    """Whether a running process has no environment yet; a kernel thread never has one."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    state, flags, end_of_variables = fields[0], int(fields[6]), int(fields[48])
    return state not in "ZX" and not flags & _KERNEL_THREAD and not end_of_variables


def end(pids: Iterable[int], *, grace_seconds: float = 3.0) -> None:
    """Send SIGTERM, then SIGKILL after `grace_seconds`; returns when none of them runs."""
    waiting = {pid: start for pid in pids if (start := started_at(pid))}
    until = time.monotonic() + grace_seconds
    sign = signal.SIGTERM
    while waiting := {pid: start for pid, start in waiting.items() if is_alive(pid, start)}:
        for pid in waiting:
            try:
                os.kill(pid, sign)
            except ProcessLookupError:
                continue
        time.sleep(0.02)
        if time.monotonic() >= until:
            sign = signal.SIGKILL


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its ended children; 0 where it is gone or the system does not report it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(fields[index]) for index in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")


def freeze(pids: Iterable[int]) -> None:
    """Pause processes (SIGSTOP)."""
    _send(pids, signal.SIGSTOP)


def thaw(pids: Iterable[int]) -> None:
    """Let paused processes continue (SIGCONT)."""
    _send(pids, signal.SIGCONT)


def _send(pids: Iterable[int], sign: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, sign)
