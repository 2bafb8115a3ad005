"""Copies files between a lease's folder here and on its nodes: rsync over the ssh hosts that SkyPilot configures."""

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

CONNECT_SECONDS = 40
"""SkyPilot reaches some nodes (Kubernetes, Slurm) through a Python program, which takes its time on a busy machine."""
SSH_OPTIONS = [
    *("-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}"),
    *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
]
FETCH_OPTIONS = ("-rltz", "--executability", "--safe-links")
"""Folders, files and links, with times. Not owners, modes, devices and FIFOs; not links out of the lease's folder: they
would lead to files of this machine. What arrives is checked again before it is used (mlcd.untrusted)."""
PARALLEL_HOSTS = 8
NOT_FETCHED = (".venv", "__pycache__", ".cache", "node_modules")
"""Names in the working folder that are not fetched."""


def ssh(host: str) -> list[str]:
    """The command of ssh with SkyPilot's configuration and key: ssh itself reads the account's home, not $HOME."""
    home = Path.home()
    key = home / ".sky" / "generated" / "ssh-keys" / f"{re.sub(r'-worker[0-9]+$', '', host)}.key"
    identity = ["-i", str(key)] if key.exists() else []
    return ["ssh", "-F", str(home / ".ssh" / "config"), *identity, *SSH_OPTIONS]


def news_filters(live: Sequence[str]) -> list[str]:
    """Filters for what is fetched repeatedly: the nodes' logs, the progress, the checkpoints, and `live`."""
    patterns = ["/progress.jsonl", "/node-*/***", "/checkpoint/***"]
    wanted = [*_including(patterns), *_including([f"/workdir/{name}" for name in live])]
    return ["--exclude=*.part", "--exclude=/node-*/exit.json", *wanted, "--exclude=*"]  # a .part file is incomplete


def end_filters() -> list[str]:
    """Filters for the exit files. Fetched after the news, so that everything a node wrote is here before its exit."""
    return [*_including(["/node-*/exit.json"]), "--exclude=*"]


def result_filters(outputs: Sequence[str] | None) -> list[str]:
    """Filters for what is fetched at the end: `outputs` of the working folder, or all of it."""
    return path_filters(["workdir"] if outputs is None else [f"workdir/{name}" for name in outputs])


def path_filters(paths: Sequence[str]) -> list[str]:
    """Filters for these paths of the lease's folder, with everything below; of the whole `workdir` not NOT_FETCHED."""
    skipped = [f"--exclude={name}" for name in NOT_FETCHED] if "workdir" in paths else []
    return [*skipped, *_including([f"/{path.strip('/')}" for path in paths]), "--exclude=*"]


def _including(patterns: Sequence[str]) -> Iterator[str]:
    """rsync looks into a folder only where the folder itself is included."""
    for pattern in patterns:
        for parent in reversed(PurePosixPath(pattern).parents):
            if str(parent) != "/":
                yield f"--include={parent}/"
        yield f"--include={pattern}"
        if not pattern.endswith("***"):
            yield f"--include={pattern}/***"


def fetch(host: str, remote: str, folder: Path, filters: Sequence[str], *, seconds: float) -> str:
    """Copy what the filters select from the host's `remote` (relative to its home) to `folder`; "" or the error."""
    command = [
        "rsync",
        *FETCH_OPTIONS,
        f"--timeout={CONNECT_SECONDS + 5}",
        "-e",
        shlex.join(ssh(host)),
        *filters,
        f"{host}:{remote}/",
        f"{folder}/",
    ]
    return _run(command, seconds)


def touch(host: str, remote: str, *, seconds: float) -> str:
    """Create an empty file on the host; "" or the error."""
    return _run([*ssh(host), host, f"touch {shlex.quote(remote)}"], seconds)


def on_each(hosts: Sequence[str], action: Callable[[str], str]) -> dict[str, str]:
    """Run `action` on all hosts concurrently; the errors by host, empty when there are none."""
    with ThreadPoolExecutor(PARALLEL_HOSTS) as pool:
        results = dict(zip(hosts, pool.map(action, hosts), strict=True))
    return {host: text for host, text in results.items() if text}


def _run(command: Sequence[str], seconds: float) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end in {seconds:.0f} s"
    except OSError as error:
        return f"{command[0]}: {error.strerror or error}"
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else f"{command[0]}: {lines[-1] if lines else done.returncode}"
