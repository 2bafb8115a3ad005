"""A server that keeps running after mlcd ends: pinned to CPUs, and recorded so that `mlcd down` finds it."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

from mlcd.clouds.nodes import PREFIX
from mlcd.clouds.serving.local import LocalServing, cores_of
from mlcd.clouds.workspace import Workspace
from mlcd.errors import BadInput, ProviderError
from mlcd.home import private_folder
from mlcd.space import Config
from mlcd.untrusted import last_line

READY_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A running server that outlives mlcd."""

    address: str
    model: str
    pid: int
    log: str


def check_port(host: str, port: int) -> None:
    """Raises BadInput where the port is taken, before anything is spent on a run that would use it."""
    if port == 0:
        return
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            raise BadInput(
                f"--port: {port} on {host} cannot be used: {reason}; choose another, or 0 for a free one"
            ) from error


def deploy(cloud: LocalServing, config: Config, *, run_id: str, host: str, port: int) -> Deployed:
    """Start the server of `config` and leave it running. Raises BadInput with the server's message where it refuses."""
    lease_id = f"{PREFIX}{run_id[-40:].lower()}-{secrets.token_hex(3)}"
    folder = Workspace(cloud.home, run_id).lease(lease_id)
    private_folder(folder)
    command = [sys.executable, "-m", "mlcd.server", *cloud.options(config, port=port, host=host).arguments()]
    ready_file = folder / "ready.json"
    held = cloud.leases.hold(lease_id, folder)
    with (folder / "log.txt").open("ab") as log, ready_file.open("ab") as out:
        server = held.start(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, env=cloud.environment())
    until = time.monotonic() + READY_SECONDS
    try:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(server.pid, cloud.cpus[: cores_of(config, len(cloud.cpus))])
        while b"\n" not in (text := ready_file.read_bytes()):
            if server.poll() is not None:
                said = last_line(folder / "log.txt", most_characters=2000).removeprefix("mlcd.server: ")
                raise BadInput(said or "the server did not start")
            if time.monotonic() > until:
                raise ProviderError(f"the server was not ready after {READY_SECONDS:.0f} s; see {folder / 'log.txt'}")
            time.sleep(0.1)
        held.hand_over(server.pid)  # to itself, so that the next search does not end it as a leftover
    except BaseException:
        held.close()
        raise
    data = json.loads(text.partition(b"\n")[0])
    return Deployed(address=data["address"], model=data["model"], pid=server.pid, log=str(folder / "log.txt"))
