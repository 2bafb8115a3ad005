"""Keeps a server for as long as someone holds the other end of its standard input, and not a moment longer.

Run as a file of its own: the most seconds it may take, then the server's command. mlcd holds a pipe to it; when mlcd
dies, however that may be, the pipe closes and the server is ended with all that it started; it also ends when its time
is over, heard from or not. Standard library only, so that it starts at once.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

GRACE_SECONDS = 3.0
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def main(seconds: float, command: list[str]) -> int:
    """Run `command` until it ends by itself, or the pipe or its time does; its exit code, less than 0 for a signal."""
    until = time.monotonic() + seconds
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    server = subprocess.Popen(  # noqa: S603 - what mlcd asked for
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_keeper,  # noqa: PLW1509 - there are no threads here
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
    """Linux ends the server even where the keeper is killed and cannot."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)


def _end(server: "subprocess.Popen[bytes]") -> None:
    """The server's whole session: asked first, then killed."""
    until = time.monotonic() + GRACE_SECONDS
    sign = signal.SIGTERM
    while True:
        try:
            os.killpg(server.pid, sign)
        except (ProcessLookupError, PermissionError):  # nobody is left of it
            break
        server.poll()
        time.sleep(0.05)
        if time.monotonic() >= until:
            sign = signal.SIGKILL
    server.wait()


if __name__ == "__main__":
    code = main(float(sys.argv[1]), sys.argv[2:])
    sys.exit(code if code >= 0 else 128 - code)
