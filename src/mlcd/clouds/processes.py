"""Processes on this machine that carry a lease's name: found, told apart from later ones with the same pid, ended."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mlcd.untrusted import printable

TAG = "MLCD_LEASE"
"""The environment variable that every process of a lease carries."""
EXEC_SECONDS = 1.0
"""How long to wait for a process in the middle of exec(); exec() takes less than a millisecond of CPU time."""
GRACE_SECONDS = 3.0
"""Time between SIGTERM and SIGKILL."""
KILL_SECONDS = 10.0
"""How long a killed process may take to end: one that waits for a disk that does not answer may never end."""
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of linux/sched.h, in field 9 of /proc/PID/stat
_STAT = Path("/proc/self/stat")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """A process, told apart from every other one of this boot. `session` is 0 where the system does not report it."""

    pid: int
    started: str
    session: int = 0

    @staticmethod
    def of(pid: int) -> "ProcessId":
        """The identity of a running process; `started` is "" where it does not run."""
        return ProcessId(pid=pid, started=started_at(pid), session=session_of(pid))

    @property
    def is_alive(self) -> bool:
        """Whether this very process still runs: the same pid, start and, where it was known, session."""
        return is_alive(self.pid, self.started) and self.session in (0, session_of(self.pid))


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; empty where the process or /proc is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def started_at(pid: int) -> str:
    """When the process started, as the system writes it; "" where it does not run. With the pid it is unique."""
    if _STAT.exists():
        fields = _stat(pid)
        return "" if not fields or fields[0] in "ZX" else fields[19]
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607
    return found.stdout.strip()


def started_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since the boot; None where it does not run or there is no /proc."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def ticks_now() -> int:
    """The time since the boot, in the clock ticks of `started_ticks`; 0 on systems without that clock."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def session_of(pid: int) -> int:
    """The session of a process; 0 where it does not run or the system does not report it."""
    try:
        return os.getsid(pid)
    except (OSError, AttributeError):
        return 0


def parent_of(pid: int) -> int:
    """The parent of a process; 0 where it does not run, has none or there is no /proc."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def user_of(pid: int) -> int | None:
    """The user who started the process (its real user); None where it does not run or there is no /proc."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), None)


def command_of(pid: int) -> str:
    """The command line of a process, at most 80 characters; its name where it has none; "" where it does not run."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        words = words or Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""
    return " ".join(printable(words, most_characters=80).split())


def all_pids() -> list[int]:
    """Every process of this machine; empty on systems without /proc."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def is_alive(pid: int, start: str) -> bool:
    """Whether the process `pid` that started at `start` still runs."""
    return bool(start) and started_at(pid) == start


def tagged(lease_id: str) -> list[int]:
    """Running processes that carry the lease's name; none are found on systems without /proc."""
    return all_tagged().get(lease_id, [])


def all_tagged() -> dict[str, list[int]]:
    """Running processes that carry any lease's name, by lease; none are found on systems without /proc."""
    found: dict[str, list[int]] = {}
    for pid in all_pids():
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
    if not (fields := _stat(pid)):
        return False
    state, flags, end_of_variables = fields[0], int(fields[6]), int(fields[48])
    return state not in "ZX" and not flags & _KERNEL_THREAD and not end_of_variables


def end(pids: Iterable[int], *, grace_seconds: float = GRACE_SECONDS) -> list[int]:
    """Send SIGTERM, then SIGKILL after `grace_seconds`; returns when none of them runs.

    Returns those that still run KILL_SECONDS later, or that this user may not end; a later process with the pid of one
    of them is not touched.
    """
    waiting = {pid: start for pid in pids if (start := started_at(pid))}
    until = time.monotonic() + grace_seconds
    sign = signal.SIGTERM
    while waiting := {pid: start for pid, start in waiting.items() if is_alive(pid, start)}:
        if sum(_send(pid, sign, start) for pid, start in waiting.items()) == 0:
            break
        for pid, start in waiting.items():
            _send(pid, signal.SIGCONT, start)  # one that is paused would not notice
        time.sleep(0.02)
        if time.monotonic() >= until:
            sign = signal.SIGKILL
        if time.monotonic() >= until + KILL_SECONDS:
            break
    return [pid for pid, start in waiting.items() if is_alive(pid, start)]


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its ended children; 0 where it is gone or the system does not report it."""
    fields = _stat(pid)
    return sum(int(fields[index]) for index in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _send(pid: int, sign: signal.Signals, start: str = "") -> bool:
    """Send a signal to the process that started at `start`, never to a later one; returns whether that was allowed."""
    with suppress(ProcessLookupError):
        if not hasattr(os, "pidfd_open"):
            return _kill(pid, sign)
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        except OSError:  # a kernel without it
            return _kill(pid, sign)
        try:
            if not start or started_at(pid) == start:  # it holds for the descriptor too: it was opened before
                signal.pidfd_send_signal(descriptor, sign)
        except PermissionError:
            return False
        finally:
            os.close(descriptor)
    return True


def _kill(pid: int, sign: signal.Signals) -> bool:
    try:
        os.kill(pid, sign)
    except PermissionError:
        return False
    return True


def resident_gib(pid: int) -> float:
    """A process's resident memory; 0 where it is gone or the system does not report it."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30
