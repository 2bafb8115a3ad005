"""A way from this machine to a port of a node: an ssh that forwards connections, for as long as mlcd lives.

Nothing of the node is opened to the network: whoever reaches the tunnel is on this machine.
"""

import contextlib
import socket
import subprocess
from pathlib import Path

from mlcd.clouds.skypilot.transport import ssh
from mlcd.untrusted import last_line

LOOPBACK = "127.0.0.1"
END_SECONDS = 10.0
_STAYS = "cat"
"""What ssh runs on the node: it ends when its input is closed, which a killed mlcd cannot help doing."""


class Tunnel:
    """Connections to `place`, an address of this machine, go to `address`:`port` as the ssh host sees it.

    log  where ssh's messages go
    """

    def __init__(self, host: str, address: str, port: int, *, log: Path) -> None:
        here, self.host, self.log = _free_port(), host, log
        self.place = f"{LOOPBACK}:{here}"
        options = ["-T", "-o", "ExitOnForwardFailure=yes", "-L", f"{LOOPBACK}:{here}:{address}:{port}"]
        with log.open("ab") as out:
            self._ssh = subprocess.Popen(  # noqa: S603 - ssh, with a host of SkyPilot's
                [*ssh(host), *options, host, _STAYS],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=out,
            )

    @property
    def fault(self) -> str:
        """Why it no longer leads anywhere; "" while it does."""
        if self._ssh.poll() is None:
            return ""
        return f"the ssh tunnel to {self.host} ended: {last_line(self.log) or f'exit code {self._ssh.returncode}'}"

    def close(self) -> None:
        """End it. Idempotent."""
        with contextlib.suppress(OSError):
            if self._ssh.stdin is not None:
                self._ssh.stdin.close()
        self._ssh.terminate()
        try:
            self._ssh.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._ssh.kill()
            self._ssh.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
