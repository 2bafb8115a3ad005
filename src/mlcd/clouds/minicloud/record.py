"""The registry of this machine's leases: who owns each, and the names of everything that belongs to it.

Every name is derived from the lease's name, so that what a killed mlcd left running can be found and ended.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from mlcd.clouds.lease_records import SignedRecords, check_lease_id
from mlcd.clouds.nodes import PREFIX
from mlcd.clouds.processes import is_alive, started_at
from mlcd.errors import ProviderError
from mlcd.untrusted import Fields, Malformed

REGISTRY = Path("/run/mlcd/minicloud")
"""Signed records, one per lease, shared by all mlcd processes of this machine; gone after a reboot, like the nodes."""
_LOCK_SECONDS = 60.0
_NAMESPACE = re.compile(rf"({PREFIX}.+)\.([0-9]+)")


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

    def save(self) -> None:
        """Write it into the registry. Raises OSError."""
        SignedRecords(REGISTRY).write(self.lease_id, asdict(self))


def read_records() -> dict[str, LeaseRecord]:
    """The proved records of the registry, by lease."""
    return {lease_id: found for lease_id, found in _all_records() if isinstance(found, LeaseRecord)}


def unproved_records() -> dict[str, Malformed]:
    """Why each other record of the registry is not proved, by lease. Nobody knows who owns such a lease."""
    return {lease_id: found for lease_id, found in _all_records() if isinstance(found, Malformed)}


def _all_records() -> Iterator[tuple[str, LeaseRecord | Malformed]]:
    for lease_id, found in SignedRecords(REGISTRY).all():
        try:
            yield lease_id, found if isinstance(found, Malformed) else _record(lease_id, found)
        except Malformed as error:
            yield lease_id, error


def _record(lease_id: str, fields: Fields) -> LeaseRecord:
    return LeaseRecord(
        lease_id=lease_id,
        instance=fields.text("instance"),
        count=fields.whole("count", least=0, most=1000),
        subnet=fields.whole("subnet", least=0, most=255) if "subnet" in fields else None,
        folder=fields.text("folder"),
        owner_pid=fields.whole("owner_pid", least=0),
        owner_started=fields.text("owner_started"),
    )


def forget(lease_id: str) -> None:
    """Delete a lease from the registry: the last step of ending it."""
    (REGISTRY / f"{lease_id}.sock").unlink(missing_ok=True)
    SignedRecords(REGISTRY).forget(lease_id)


@contextmanager
def machine_lock() -> Iterator[None]:
    """Hold while deciding what is free: CPUs, memory and subnets are shared by the whole machine."""
    REGISTRY.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = FileLock(REGISTRY / "lock", is_singleton=False)
    try:
        lock.acquire(timeout=_LOCK_SECONDS)
    except Timeout as error:
        raise ProviderError(f"another mlcd has held {REGISTRY}/lock for a minute; end it, or try again") from error
    try:
        yield
    finally:
        lock.release()
