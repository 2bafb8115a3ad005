"""Whether this process trains alone although its job has several workers."""

import os
import sys
from pathlib import Path

_TABLES = ("tcp", "tcp6", "udp", "udp6")
_MPI = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")
"""Variables of a process that an MPI launcher started: workers of one machine may exchange through shared memory."""


def trains_alone() -> bool:
    """Whether this process has no connection through which it could exchange gradients with other workers.

    False where it has any network socket or RDMA device open, was started by MPI, or the system does not say: a job
    that is distributed by whatever means is never called alone. One that talks to something else is not found out.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _MPI):
        return False
    try:
        opened = {_target(file) for file in Path("/proc/self/fd").iterdir()}
        known = {f"socket:[{number}]" for table in _TABLES for number in _sockets(f"/proc/self/net/{table}")}
    except OSError:
        return False
    return not opened & known and not any("infiniband" in target for target in opened)


def _target(file: Path) -> str:
    """What a descriptor is open on; "" if it is closed meanwhile, such as the one that lists the folder."""
    try:
        return str(file.readlink())
    except FileNotFoundError:
        return ""


def _sockets(path: str) -> list[str]:
    """The inodes of the sockets in one of the kernel's tables; none where there is no such table."""
    try:
        rows = Path(path).read_text(encoding="ascii").splitlines()[1:]
    except FileNotFoundError:
        return []
    return [fields[9] for fields in map(str.split, rows) if len(fields) > 9]
