"""Files between a lease's folder here and on its nodes, by rsync over the ssh names that SkyPilot writes."""

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

OPTIONS = [
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
]
PARALLEL = 8
NOT_HOME = (".venv", "__pycache__", ".cache", "node_modules")
"""What a job makes in its folder and nobody wants back."""


def _ssh(host: str) -> list[str]:
    """ssh with the files that SkyPilot writes: by itself ssh looks into the account's home, not into $HOME."""
    home = Path.home()
    key = home / ".sky" / "generated" / "ssh-keys" / f"{re.sub(r'-worker[0-9]+$', '', host)}.key"
    identity = ["-i", str(key)] if key.exists() else []
    return ["ssh", "-F", str(home / ".ssh" / "config"), *identity, *OPTIONS]


def news_filters(live: Sequence[str]) -> list[str]:
    """What is brought home again and again: the nodes' logs, the progress, the checkpoints, and `live`."""
    patterns = ["/progress.jsonl", "/node-*/***", "/checkpoint/***"]
    wanted = [*_including(patterns), *_including([f"/workdir/{name}" for name in live])]
    return ["--exclude=*.part", "--exclude=/node-*/exit.json", *wanted, "--exclude=*"]  # a .part is not whole yet


def end_filters() -> list[str]:
    """How nodes ended. Apart from the news: whoever sees a node's end must find all that it wrote before."""
    return [*_including(["/node-*/exit.json"]), "--exclude=*"]


def result_filters(outputs: Sequence[str] | None) -> list[str]:
    """What is brought home at the end: `outputs` of the working folder, or all of it."""
    if outputs is None:
        return [*(f"--exclude={name}" for name in NOT_HOME), "--include=/workdir/***", "--exclude=*"]
    return path_filters([f"workdir/{name}" for name in outputs])


def path_filters(paths: Sequence[str]) -> list[str]:
    """These paths of the lease's folder, with all that is below them."""
    return [*_including([f"/{path.strip('/')}" for path in paths]), "--exclude=*"]


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
    """Bring what the filters let through from the host's `remote` (from its home) into `folder`; "" or what failed."""
    command = [
        "rsync",
        "-az",
        "--timeout=20",
        "-e",
        shlex.join(_ssh(host)),
        *filters,
        f"{host}:{remote}/",
        f"{folder}/",
    ]
    return _run(command, seconds)


def touch(host: str, remote: str, *, seconds: float) -> str:
    """Make an empty file on the host; "" or what failed."""
    return _run([*_ssh(host), host, f"touch {shlex.quote(remote)}"], seconds)


def on_each(hosts: Sequence[str], action: Callable[[str], str]) -> dict[str, str]:
    """`action` on all hosts at once; what failed by host, empty when nothing did."""
    with ThreadPoolExecutor(PARALLEL) as pool:
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
