"""What the nodes and servers of a run wrote: files below $MLCD_HOME/work/RUN/leases."""

import re
from dataclasses import dataclass
from pathlib import Path

from mlcd.untrusted import Malformed, check_way, read_json

JOB_BYTES = 2**20
"""A lease's job.json is smaller."""
MOST_LEASES = 10_000
_LEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""Names that mlcd gives leases; a job can make folders of other names beside its own."""
_NODE = re.compile(r"node-([0-9]{1,6})")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLog:
    """The output of one node, or of a server (`node` 0)."""

    node: int
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLogs:
    """The logs of one lease.

    instance  the type of its nodes; "" for a server
    at        seconds since 1970: when its nodes were ordered; of a server, when it last wrote
    """

    lease: str
    instance: str
    at: float
    nodes: tuple[NodeLog, ...]


def lease_logs(home: Path, run_id: str) -> tuple[LeaseLogs, ...]:
    """The logs of a run, by lease, the oldest first. A lease that cannot be read is skipped: jobs write there."""
    root = home / "work" / run_id / "leases"
    found = []
    try:
        folders = sorted(root.iterdir())[:MOST_LEASES]
    except OSError:
        return ()
    for folder in folders:
        if not _LEASE.fullmatch(folder.name):
            continue
        try:
            lease = _lease(folder, home)
        except (OSError, Malformed):
            continue
        if lease is not None:
            found.append(lease)
    return tuple(sorted(found, key=lambda lease: lease.at))


def _lease(folder: Path, home: Path) -> LeaseLogs | None:
    check_way(folder, below=home)
    job, server = folder / "job.json", folder / "log.txt"
    if _is_plain(job):
        read = read_json(job, most_bytes=JOB_BYTES, below=home)
        nodes = [
            NodeLog(node=int(match[1]), path=each / "log.txt")
            for each in folder.iterdir()
            if (match := _NODE.fullmatch(each.name)) and _is_plain(each / "log.txt")
        ]
        instance = read.get("instance") if isinstance(read, dict) else None
        return LeaseLogs(
            lease=folder.name,
            instance=instance if isinstance(instance, str) else "",
            at=job.stat().st_mtime,
            nodes=tuple(sorted(nodes, key=lambda log: log.node)),
        )
    if _is_plain(server):
        return LeaseLogs(
            lease=folder.name, instance="", at=server.stat().st_mtime, nodes=(NodeLog(node=0, path=server),)
        )
    return None


def _is_plain(path: Path) -> bool:
    """Whether this is a file itself, and no link to one."""
    return path.is_file() and not path.is_symlink()
