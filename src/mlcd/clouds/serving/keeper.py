"""Runs a server for as long as its own standard input stays open.

Run as a script: the most seconds it may take, then the server's command. mlcd holds a pipe to it. When mlcd dies, for
whatever reason, the pipe closes and the keeper ends the server with all that it started, in whichever session that is.
The keeper also ends the server when its time is over, even if mlcd is gone. Uses the standard library only, so that it
starts at once.
"""

import ctypes
import importlib.util
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

GRACE_SECONDS = 3.0
_DEATH_SIGNAL, _ADOPTS_ORPHANS = 1, 36  # PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER of prctl(2)
_DESCENDANTS = Path(__file__).parents[2] / "platforms" / "descendants.py"


def main(seconds: float, command: list[str]) -> int:
    """Run `command` until it ends, the pipe closes or its time is over; its exit code, negative for a signal."""
    until = time.monotonic() + seconds
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if sys.platform == "linux":  # what the server starts is found although its parent has ended
        ctypes.CDLL(None).prctl(_ADOPTS_ORPHANS, 1, 0, 0, 0)
    server = subprocess.Popen(  # noqa: S603 - what mlcd asked for
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_keeper,  # noqa: PLW1509 - this process has no threads
    )
    try:
        while (code := server.poll()) is None:
            readable, _, _ = select.select([sys.stdin], [], [], 0.1)
            if time.monotonic() >= until or (readable and not os.read(sys.stdin.fileno(), 4096)):
                break
        return 0 if code is None else code
    finally:
        _end(server)


def _die_with_keeper() -> None:
    """Have Linux kill the server where the keeper itself is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)


def _end(server: "subprocess.Popen[bytes]") -> None:
    """End the server and all that it started: SIGTERM, then SIGKILL."""
    if sys.platform == "linux":
        _descendants().end_all([server], grace_seconds=GRACE_SECONDS)
        return
    until = time.monotonic() + GRACE_SECONDS
    sign = signal.SIGTERM
    while True:
        try:
            os.killpg(server.pid, sign)
        except (ProcessLookupError, PermissionError):  # none of its processes runs
            break
        server.poll()
        time.sleep(0.05)
        if time.monotonic() >= until:
            sign = signal.SIGKILL
    server.wait()


def _descendants() -> Any:
    """platforms/descendants.py, read as a file: an isolated Python need not find mlcd."""
    spec = importlib.util.spec_from_file_location("descendants", _DESCENDANTS)
    if spec is None or spec.loader is None:
        raise ImportError(f"{_DESCENDANTS} is missing")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    code = main(float(sys.argv[1]), sys.argv[2:])
    sys.exit(code if code >= 0 else 128 - code)
