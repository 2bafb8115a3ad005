"""Runs a server on a share of a GPU, under a multi-process service (MPS) of its own.

Run as a script with the server's command. The service is started in this process's session and group, so that whoever
ends the server ends it too; where the user's own service runs already, none is started. Uses the standard library
only, so that it starts at once.

https://docs.nvidia.com/deploy/mps: a client's share is CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, its memory
CUDA_MPS_PINNED_DEVICE_MEM_LIMIT.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from types import FrameType

CONTROL = "nvidia-cuda-mps-control"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"
LOGS = "CUDA_MPS_LOG_DIRECTORY"
USERS_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - where NVIDIA's programs look by default
CLIENT_LIMITS = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
START_SECONDS = 10.0
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def users_service() -> str:
    """The folder of a service that runs already; "" if there is none."""
    folder = os.environ.get(PIPES, USERS_PIPES)
    return folder if _is_trusted(folder) and _answers(folder) else ""


def _is_trusted(folder: str) -> bool:
    """Whether this user or root made the folder: where NVIDIA's programs look by default, any user may make one."""
    try:
        return os.stat(folder).st_uid in (0, os.getuid())  # noqa: PTH116
    except OSError:
        return False


def main() -> int:
    """Start the service and the server; returns the server's exit code."""
    command = sys.argv[1:]
    if users_service():
        os.execvp(command[0], command)  # noqa: S606
    with tempfile.TemporaryDirectory(prefix="mlcd-mps-") as folder:  # its sockets' names must be short
        return _served(folder, command)


def _served(folder: str, command: list[str]) -> int:
    limits = {name: os.environ.pop(name) for name in CLIENT_LIMITS if name in os.environ}  # not the service's own
    os.environ[PIPES] = os.environ[LOGS] = folder
    log = os.path.join(folder, "service.txt")  # noqa: PTH118
    with open(log, "ab") as out:  # noqa: PTH123
        service = subprocess.Popen(  # noqa: S603
            [CONTROL, "-f"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            preexec_fn=_die_with_this,  # noqa: PLW1509 - this process has no threads
        )
    until = time.monotonic() + START_SECONDS
    while not _answers(folder):
        if service.poll() is not None or time.monotonic() > until:
            service.kill()
            print(f"mps: {CONTROL} did not start: {_last_line(log)}", file=sys.stderr)  # noqa: T201
            return 3
        time.sleep(0.05)
    server = subprocess.Popen(command, env={**os.environ, **limits}, preexec_fn=_die_with_this)  # noqa: PLW1509, S603

    def pass_on(sign: int, _: FrameType | None) -> None:
        server.send_signal(sign)

    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, pass_on)
    try:
        code = server.wait()
    finally:
        _tell(folder, "quit -t 1")
        service.terminate()
    return code if code >= 0 else 128 - code


def _die_with_this() -> None:
    """Have Linux kill the service and the server where this process is killed: so it is when its keeper is."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)


def _answers(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "control")) and _tell(folder, "get_server_list")  # noqa: PTH110, PTH118


def _tell(folder: str, words: str) -> bool:
    """Whether the service of this folder took a command."""
    try:
        done = subprocess.run(  # noqa: S603
            [CONTROL],
            input=f"{words}\n".encode(),
            capture_output=True,
            timeout=5,
            check=False,
            env={**os.environ, PIPES: folder},
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _last_line(path: str) -> str:
    with open(path, "rb") as file:  # noqa: PTH123
        lines = file.read()[-2000:].decode(errors="replace").splitlines()
    return lines[-1] if lines else "it said nothing"


if __name__ == "__main__":
    sys.exit(main())
