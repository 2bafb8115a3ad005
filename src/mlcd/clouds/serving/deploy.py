"""A server that keeps running after mlcd ends: pinned to CPUs, and recorded so that `mlcd down` finds it."""

import json
import os
import secrets
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from mlcd.clouds.nodes import PREFIX
from mlcd.clouds.serving.local import Launch, ServersHere, is_ready
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
        except socket.gaierror as error:
            allowed = "an address of this machine, such as 127.0.0.1 or 0.0.0.0"
            raise BadInput(f"--host: there is no such address (got {host[:80]!r}); allowed: {allowed}") from error
        except (OSError, OverflowError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            raise BadInput(
                f"--port: {port} on {host} cannot be used: {reason}; choose another, or 0 for a free one"
            ) from error


def deploy(
    cloud: ServersHere, config: Config, *, run_id: str, host: str, port: int, ready_seconds: float = READY_SECONDS
) -> Deployed:
    """Start the server of `config` and leave it running. Raises BadInput with the server's message where it refuses.

    ready_seconds  how long it may take to become ready
    """
    lease_id = f"{PREFIX}{run_id[-40:].lower()}-{secrets.token_hex(3)}"
    folder = Workspace(cloud.home, run_id).lease(lease_id)
    private_folder(folder)
    launch = cloud.launch(config, host=host, port=port)
    ready_file = folder / "ready.json"
    held = cloud.leases.hold(lease_id, folder)
    with (folder / "log.txt").open("ab") as log, ready_file.open("ab") as out:
        server = held.start(
            launch.command,
            stdin=subprocess.DEVNULL,
            stdout=log if launch.address else out,
            stderr=log,
            env=dict(launch.env),
        )
    until = time.monotonic() + ready_seconds
    try:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(server.pid, cloud.cpus[: launch.cores])
        while (found := _answers_at(launch, ready_file)) is None:
            if server.poll() is not None:
                said = last_line(folder / "log.txt", most_characters=2000).removeprefix("mlcd.server: ")
                raise BadInput(said or "the server did not start")
            if time.monotonic() > until:
                raise ProviderError(f"the server was not ready after {ready_seconds:.0f} s; see {folder / 'log.txt'}")
            time.sleep(0.1)
        held.hand_over(server.pid)  # to itself, so that the next search does not end it as a leftover
    except BaseException:
        held.close()
        raise
    address, model = found
    return Deployed(address=address, model=model, pid=server.pid, log=str(folder / "log.txt"))


def _answers_at(launch: Launch, ready_file: Path) -> tuple[str, str] | None:
    """(address, model's name) of a server that is ready; None if it is not."""
    if launch.address:
        return (launch.address, launch.model) if is_ready(launch.address + launch.ready) else None
    text = ready_file.read_bytes()
    if b"\n" not in text:
        return None
    data = json.loads(text.partition(b"\n")[0])
    return data["address"], data["model"]
