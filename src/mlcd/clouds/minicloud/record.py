"""The registry of this machine's leases: who owns each, and the names of everything that belongs to it.

Every name is derived from the lease's name, so that what a killed mlcd left running can be found and ended.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from mlcd.clouds.nodes import PREFIX
from mlcd.clouds.processes import is_alive, started_at
from mlcd.errors import ProviderError

REGISTRY = Path("/run/mlcd/minicloud")
"""One file per lease, shared by all mlcd processes of this machine; gone after a reboot, like the nodes."""
_LOCK_SECONDS = 60.0
_LEASE_ID = re.compile(rf"{PREFIX}[A-Za-z0-9_-][A-Za-z0-9_.-]{{0,150}}")
_NAMESPACE = re.compile(rf"({PREFIX}.+)\.([0-9]+)")


def check_lease_id(lease_id: str) -> None:
    """Raises ValueError unless the name is valid for a file, a namespace and a control group."""
    if not _LEASE_ID.fullmatch(lease_id):
        raise ValueError(f"lease_id: must be {PREFIX!r} and letters, digits, '-', '_' or '.' (got {lease_id!r})")


def link_tag(lease_id: str) -> str:
    """The prefix of the names of a lease's links; short, since the kernel allows 15 characters."""
    return PREFIX + hashlib.sha256(lease_id.encode()).hexdigest()[:6]


def namespace_name(lease_id: str, rank: int) -> str:
    """The network namespace of a node, as `ip netns` lists it."""
    return f"{lease_id}.{rank}"


def lease_of_namespace(name: str) -> str | None:
    """The lease a namespace belongs to; None when it is not mlcd's."""
    match = _NAMESPACE.fullmatch(name)
    return match[1] if match else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """A lease in the registry. `subnet` is x in 10.77.x.0/24; None for what has no nodes."""

    lease_id: str
    instance: str
    count: int
    subnet: int | None
    folder: str
    owner_pid: int = field(default_factory=os.getpid)
    owner_started: str = field(default_factory=lambda: started_at(os.getpid()))

    def __post_init__(self) -> None:
        check_lease_id(self.lease_id)

    @property
    def owned(self) -> bool:
        """Whether the mlcd process that created it still runs."""
        return is_alive(self.owner_pid, self.owner_started)

    def address(self, rank: int) -> str:
        """A node's address; the bridge, which is this machine, has .1."""
        return f"10.77.{self.subnet}.{rank + 2}"

    def save(self, extra: Path | None = None) -> None:
        """Write it into the registry, and to `extra`."""
        text = json.dumps(asdict(self), indent=1)
        REGISTRY.mkdir(parents=True, exist_ok=True)
        unfinished = REGISTRY / f"{self.lease_id}.new"
        unfinished.write_text(text)
        unfinished.replace(REGISTRY / f"{self.lease_id}.json")
        if extra is not None:
            extra.write_text(text)


def read_records() -> dict[str, LeaseRecord]:
    """All records of the registry, by lease. An unreadable file counts as a lease without an owner."""
    records = {}
    for path in sorted(REGISTRY.glob(f"{PREFIX}*.json")):
        try:
            record = LeaseRecord(**json.loads(path.read_text()))
        except FileNotFoundError:
            continue
        except (TypeError, ValueError):
            record = LeaseRecord(
                lease_id=path.stem, instance="", count=0, subnet=None, folder="", owner_pid=0, owner_started=""
            )
        records[record.lease_id] = record
    return records


def forget(lease_id: str) -> None:
    """Delete a lease from the registry: the last step of ending it."""
    for ending in (".sock", ".new", ".json"):
        (REGISTRY / f"{lease_id}{ending}").unlink(missing_ok=True)


@contextmanager
def machine_lock() -> Iterator[None]:
    """Hold while deciding what is free: CPUs, memory and subnets are shared by the whole machine."""
    REGISTRY.mkdir(parents=True, exist_ok=True)
    lock = FileLock(REGISTRY / "lock", is_singleton=False)
    try:
        lock.acquire(timeout=_LOCK_SECONDS)
    except Timeout as error:
        raise ProviderError(f"another mlcd has held {REGISTRY}/lock for a minute; end it, or try again") from error
    try:
        yield
    finally:
        lock.release()
