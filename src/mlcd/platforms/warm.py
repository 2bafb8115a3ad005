"""Fork a job's process from a warm worker: a process that has already imported PyTorch.

This is the agent's side; the other side is mlcd.platforms.warm_server. They exchange lines of JSON over a Unix socket:
the request, then `{"pid": N}` when the process runs, then `{"code": N}` when it has ended.
"""

import json
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence

GROUPS_VARIABLE = "MLCD_CGROUPS"
"""Variable with the cgroup files that a process writes its pid to, separated as in PATH; may be missing."""
_CONNECT_SECONDS = 30.0


class WarmFailed(OSError):
    """The warm worker is gone, or did not start the process."""


class WarmProcess:
    """A process forked from a warm worker, used like a subprocess.Popen. It leads its own process group.

    It ends with the process that holds this object: the worker ends it when the connection breaks.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unread = b""
        self.returncode: int | None = None
        self.pid = self._read_pid()

    def poll(self) -> int | None:
        """Its exit code once it has ended; negative for a signal."""
        if self.returncode is None:
            self._connection.setblocking(False)
            try:
                self._read_code()
            except BlockingIOError:
                return None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended. Raises TimeoutError."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"process {self.pid} still runs")
            self._connection.settimeout(left)
            self._read_code()
        return self.returncode

    def kill(self) -> None:
        """Send SIGKILL to its process group; does nothing when it has ended."""
        if self.poll() is None:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def _read_pid(self) -> int:
        self._connection.settimeout(_CONNECT_SECONDS)
        answer = self._read_line()
        if answer is None or "pid" not in answer:
            self._connection.close()
            raise WarmFailed(f"the warm worker did not start the process: {answer or 'it is gone'}")
        return answer["pid"]

    def _read_code(self) -> None:
        answer = self._read_line()
        # When the worker is gone, its processes have ended with it.
        self.returncode = -signal.SIGKILL if answer is None else answer["code"]
        self._connection.close()

    def _read_line(self) -> dict[str, int] | None:
        """The next answer; None when the worker is gone."""
        while b"\n" not in self._unread:
            try:
                received = self._connection.recv(4096)
            except ConnectionResetError:
                received = b""
            if not received:
                return None
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, int] = json.loads(line)
        return answer


def run_warm(
    socket_path: str, *, argv: Sequence[str], env: Mapping[str, str], cwd: str, log: str, network: str | None = None
) -> WarmProcess:
    """Run `python FILE ARGS` (argv) from the warm worker at `socket_path`, its output added to the file `log`.

    The process enters the network namespace `network` (default: that of this process) and the control groups in
    MLCD_CGROUPS of `env`. Raises WarmFailed and other OSErrors.
    """
    request = {
        "argv": list(argv),
        "env": dict(env),
        "cwd": cwd,
        "log": log,
        "network": network or f"/proc/{os.getpid()}/ns/net",
        "groups": [path for path in env.get(GROUPS_VARIABLE, "").split(os.pathsep) if path],
    }
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(socket_path)
        connection.sendall(json.dumps(request).encode() + b"\n")
    except OSError as error:
        connection.close()
        raise WarmFailed(f"no warm worker at {socket_path}: {error}") from error
    return WarmProcess(connection)
