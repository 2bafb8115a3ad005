"""mlcd's own records of its leases: outside every folder that a job writes, each with a proof that mlcd wrote it.

    $MLCD_HOME/leases/           mode 0700
        key                      0600; a random key, made once
        LEASE_ID.json            0600; {"proof": HMAC-SHA256 of the record with the key, "record": {...}}

A record is written before the first process of its lease starts and deleted when the last one has ended. Nobody acts on
a record that is malformed, whose proof does not match, or that has another lease's name: it is reported and skipped.
No job gets the folder's path or the key. What the proof covers: damaged and copied files, files that came from other
machines with a job's results, records of another home. What it does not: a hostile job on `local` and `minicloud` runs
as the same user, and may do whatever that user may.
"""

import hmac
import json
import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from filelock import FileLock

from mlcd.clouds.nodes import PREFIX
from mlcd.clouds.processes import ProcessId, ticks_now
from mlcd.home import private_folder, write_private
from mlcd.untrusted import Fields, Malformed, read_bytes, read_json

FOLDER = "leases"
KEY_FILE = "key"
_KEY = re.compile(rb"[0-9a-f]{64}")
_LEASE_ID = re.compile(rf"{PREFIX}(?!\.+$)[A-Za-z0-9_.-]{{1,150}}")
_MOST_AGENTS = 1000
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


def is_lease_id(name: str) -> bool:
    """Whether a name is valid for a lease: for its file, its namespaces and its control groups."""
    return _LEASE_ID.fullmatch(name) is not None


def check_lease_id(lease_id: str) -> None:
    """Raises ValueError unless the name is valid for a file, a namespace and a control group."""
    if not is_lease_id(lease_id):
        raise ValueError(f"lease_id: must be {PREFIX!r} and letters, digits, '-', '_' or '.' (got {lease_id!r})")


@cache
def this_machine() -> str:
    """Identifies the machine, its boot and its space of pids (a container has its own)."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(_BOOT_ID.read_text().strip())
    with suppress(OSError):
        parts.append(str(_PID_NAMESPACE.readlink()))
    return " ".join(parts)


class SignedRecords:
    """A folder of records, one file for each lease, whose content is proved with the folder's key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, lease_id: str, data: Mapping[str, Any]) -> None:
        """Write or replace a lease's record. Raises OSError."""
        check_lease_id(lease_id)
        key = self._key_to_write()
        record = {**data, "lease_id": lease_id}
        text = json.dumps({"proof": _proof(key, record), "record": record}, indent=1)
        private_folder(self.folder)
        write_private(self._file(lease_id), text)

    def read(self, lease_id: str) -> Fields | None:
        """The content of a lease's record; None where there is none. Raises Malformed where it is not proved."""
        file = self._file(lease_id)
        try:
            parts = Fields(read_json(file), str(file))
            record, proof = parts.fields("record"), parts.text("proof", most_characters=64)
            if not hmac.compare_digest(_proof(self._key(), dict(record.data)).encode(), proof.encode()):
                raise Malformed(str(file), "its proof does not match: this mlcd did not write it, or it was changed")
            if record.text("lease_id") != lease_id:
                raise Malformed(str(file), "is the record of another lease")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Malformed(str(file), f"cannot be read: {error.strerror or error}") from error
        return record

    def all(self) -> Iterator[tuple[str, Fields | Malformed]]:
        """Every record by its lease: its content, or why it is not proved. "" is the folder, where it is unreadable."""
        try:
            names = sorted(path.name for path in self.folder.iterdir() if path.suffix == ".json")
        except FileNotFoundError:
            return
        except OSError as error:
            yield "", Malformed(str(self.folder), f"cannot be read ({error.strerror}), so no lease can be found")
            return
        for lease_id in (name.removesuffix(".json") for name in names):
            try:
                found: Fields | Malformed | None = self.read(lease_id)
                if not is_lease_id(lease_id):
                    found = Malformed(str(self._file(lease_id)), "has no lease's name")
            except Malformed as error:
                found = error
            if found is not None:
                yield lease_id, found

    def forget(self, lease_id: str) -> None:
        """Delete a lease's record; the last step of ending it. Raises OSError."""
        self._file(lease_id).unlink(missing_ok=True)

    def _file(self, lease_id: str) -> Path:
        return self.folder / f"{lease_id}.json"

    def _key(self) -> bytes:
        """Raises Malformed where the key is missing, damaged or could be another user's, OSError."""
        file = self.folder / KEY_FILE
        if os.geteuid() not in (0, self.folder.stat().st_uid):  # who owns the home's parent can replace the folder
            raise Malformed(str(self.folder), "belongs to another user, so no record can be proved")
        try:
            key = read_bytes(file, most_bytes=64)
        except FileNotFoundError as error:
            raise Malformed(str(file), "is missing, so no record can be proved") from error
        if not _KEY.fullmatch(key):
            raise Malformed(str(file), "is damaged, so no record can be proved")
        return key

    def _key_to_write(self) -> bytes:
        """The key, made where there is none. A damaged one is moved away; what it proved is unproved from then on."""
        with suppress(Malformed, FileNotFoundError):
            return self._key()
        private_folder(self.folder)
        with FileLock(self.folder / "key.lock", timeout=60, mode=0o600):
            with suppress(Malformed, FileNotFoundError):
                return self._key()
            file = self.folder / KEY_FILE
            if file.exists() or file.is_symlink():
                file.rename(file.with_name(f"key.damaged-{secrets.token_hex(3)}"))
            key = secrets.token_hex(32).encode()
            write_private(file, key)
            return key


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """One lease: who holds it, and what identifies its processes.

    cloud    the engine's name
    folder   the lease's folder (mlcd.clouds.nodes)
    owner    the mlcd process that holds it; a server that outlives mlcd owns itself
    agents   what mlcd itself started for it
    groups   the control groups that all its processes are in; empty where there are none
    host     the machine's name, for the user
    machine  identifies the machine, its boot and the pids that are visible: elsewhere the pids mean nothing
    user     who started it
    began_ticks  the time since the boot at which it was written: its processes started later
    """

    lease_id: str
    cloud: str
    folder: str
    owner: ProcessId = field(default_factory=lambda: ProcessId.of(os.getpid()))
    agents: tuple[ProcessId, ...] = ()
    groups: tuple[str, ...] = ()
    host: str = field(default_factory=socket.gethostname)
    machine: str = field(default_factory=this_machine)
    user: int = field(default_factory=os.getuid)
    began_ticks: int = field(default_factory=ticks_now)

    def __post_init__(self) -> None:
        check_lease_id(self.lease_id)

    @property
    def is_here(self) -> bool:
        """Whether its processes, if any run, run on this machine since its last boot."""
        return self.machine == this_machine()

    @property
    def is_owned(self) -> bool:
        """Whether the process that holds it runs on this machine."""
        return self.is_here and self.owner.is_alive

    @property
    def run_id(self) -> str:
        """The run it belongs to."""
        return Path(self.folder).parent.parent.name

    def with_agents(self, *pids: int) -> Self:
        """The same lease with more agents."""
        return replace(self, agents=(*self.agents, *map(ProcessId.of, pids)))


class LeaseRecords:
    """The records of one home."""

    def __init__(self, home: Path) -> None:
        self.signed = SignedRecords(home / FOLDER)

    def save(self, record: LeaseRecord) -> None:
        """Write or replace it. Raises OSError."""
        self.signed.write(
            record.lease_id,
            {
                "cloud": record.cloud,
                "folder": record.folder,
                "owner": _as_data(record.owner),
                "agents": [_as_data(agent) for agent in record.agents],
                "groups": list(record.groups),
                "host": record.host,
                "machine": record.machine,
                "user": record.user,
                "began_ticks": record.began_ticks,
            },
        )

    def get(self, lease_id: str) -> LeaseRecord | None:
        """The record of a lease; None where there is none. Raises Malformed where it is not proved."""
        fields = self.signed.read(lease_id)
        return None if fields is None else _record(lease_id, fields)

    def all(self) -> tuple[list[LeaseRecord], dict[str, Malformed]]:
        """The proved records, and why each other one is not proved, by its lease."""
        proved, unproved = [], {}
        for lease_id, found in self.signed.all():
            try:
                if isinstance(found, Malformed):
                    raise found
                proved.append(_record(lease_id, found))
            except Malformed as error:
                unproved[lease_id] = error
        return proved, unproved

    def forget(self, lease_id: str) -> None:
        """Delete a record. Raises OSError."""
        self.signed.forget(lease_id)


def home_of(folder: Path) -> Path:
    """The home that a lease's folder (HOME/work/RUN/leases/LEASE_ID) is in; the folder above it where it is in none."""
    parents = folder.parents
    if len(parents) > 3 and (parents[0].name, parents[2].name) == ("leases", "work"):
        return parents[3]
    return folder.parent


def _record(lease_id: str, fields: Fields) -> LeaseRecord:
    return LeaseRecord(
        lease_id=lease_id,
        cloud=fields.text("cloud"),
        folder=fields.text("folder"),
        owner=_process(fields.fields("owner")),
        agents=tuple(_process(Fields(agent, fields.source)) for agent in fields.items("agents", most=_MOST_AGENTS)),
        groups=tuple(_text(group, fields.source) for group in fields.items("groups", most=8)),
        host=fields.text("host"),
        machine=fields.text("machine"),
        user=fields.whole("user", least=0),
        began_ticks=fields.whole("began_ticks", least=0),
    )


def _as_data(process: ProcessId) -> dict[str, int | str]:
    return {"pid": process.pid, "started": process.started, "session": process.session}


def _process(fields: Fields) -> ProcessId:
    return ProcessId(
        pid=fields.whole("pid", least=1), started=fields.text("started"), session=fields.whole("session", least=0)
    )


def _text(value: object, source: str) -> str:
    return Fields({"group": value}, source).text("group")


def _proof(key: bytes, record: Mapping[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, text.encode(), "sha256").hexdigest()
