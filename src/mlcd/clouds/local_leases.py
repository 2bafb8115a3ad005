"""Leases whose processes run on this machine: recorded before anything starts, found and ended whoever was killed.

What proves that a process belongs to a lease, so that it may be ended:

- it is in the lease's control group, where this user may create groups (clouds/control_groups.py); or
- it is one of the agents that the lease's record names, by pid, start and session; or
- it carries the lease's name in its environment, and the lease's user started it after the lease began.

What proves nothing is listed (`unproved`) and never ended: processes of the same user that started after the lease
began and work in its folder, are of an agent's session, or were noted by an agent; and records that are not proved.
"""

import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO

from mlcd.clouds import processes
from mlcd.clouds.control_groups import END_SECONDS, TrackingGroup, joining
from mlcd.clouds.lease_records import LeaseRecord, LeaseRecords, is_lease_id
from mlcd.clouds.nodes import Leftover, Unproved
from mlcd.clouds.processes import ProcessId
from mlcd.errors import ProviderError
from mlcd.platforms.agent import NOTES_FILE
from mlcd.untrusted import Fields, Malformed, read_json

OLD_RECORD = "lease.json"
"""Where versions before 0.2 kept a lease's record: in the lease's folder, which its job can write."""
_MOST_NOTED = 10_000


class LocalLeases:
    """The leases of one engine of this machine, in one home."""

    def __init__(self, home: Path, cloud: str) -> None:
        self.home, self.cloud = home, cloud
        self.records = LeaseRecords(home)

    def hold(self, lease_id: str, folder: Path) -> "HeldLease":
        """Record a new lease of this process. Raises OSError."""
        group = TrackingGroup.named(lease_id)
        groups = tuple(map(str, group.folders)) if group else ()
        record = LeaseRecord(lease_id=lease_id, cloud=self.cloud, folder=str(folder), groups=groups)
        self.records.save(record)
        return HeldLease(self, record, group)

    def leftovers(self) -> tuple[Leftover, ...]:
        """Every lease of which a process runs."""
        tagged, found = processes.all_tagged(), []
        for record in self._own_records():
            if count := len(proved(record, tagged.get(record.lease_id, ()))):
                what = f"{count} process{'es' if count > 1 else ''} of {record.run_id}"
                found.append(Leftover(cloud=self.cloud, lease_id=record.lease_id, what=what, owned=record.is_owned))
        return tuple(found)

    def end(self, lease_id: str) -> None:
        """End every process that is proved to be the lease's. Raises ProviderError naming those that still run."""
        try:
            record = self.records.get(lease_id)
        except Malformed as error:
            raise ProviderError(f"{lease_id}: nothing was ended, its record is not proved: {error}") from error
        if record is not None:
            end_processes(record)
            self._forget(record)

    def end_abandoned(self, run_id: str | None = None) -> None:
        """End the leases of killed mlcd processes, and forget those of which nothing is left; of one run, or of all.

        Never raises for a lease that cannot be ended: `mlcd down` reports it.
        """
        for record in self._own_records():
            if run_id not in (None, record.run_id):
                continue
            if not record.is_here:
                if _is_of_an_earlier_boot(record):
                    self._forget(record)
            elif not record.is_owned:
                with suppress(ProviderError):
                    end_processes(record)
                    self._forget(record)

    def forget_run(self, run_id: str) -> None:
        """Forget the ended leases of a run whose folders are deleted; a record stays while something may be its own."""
        for record in self._own_records():
            if record.run_id == run_id and record.is_here and not record.is_owned and not proved(record, ()):
                self._forget(record)

    def unproved(self) -> tuple[Unproved, ...]:
        """What may belong to leases of this home and is not proved to; nothing of it was or will be ended."""
        records, bad = self.records.all()
        tagged = processes.all_tagged()
        known = {pid for record in records for pid in proved(record, tagged.get(record.lease_id, ()))}
        found: dict[int, Unproved] = {}
        files = []
        for lease_id, error in bad.items():
            hint = "nothing that it names was ended; delete it once nothing of that lease runs"
            files.append(
                Unproved(cloud=self.cloud, lease_id=lease_id, what=error.source, reason=f"{error.problem}; {hint}")
            )
            group = TrackingGroup.named(lease_id) if is_lease_id(lease_id) else None
            for pid in {*tagged.get(lease_id, ()), *(group.pids() if group else ())} - known:
                found[pid] = self._process(pid, lease_id, "", f"belongs to {lease_id}, whose record is not proved")
        for record in records:
            if record.cloud == self.cloud and record.is_here and not record.is_owned:
                for pid, reason in suspects(record, tagged.get(record.lease_id, ()), known):
                    found.setdefault(pid, self._process(pid, record.lease_id, record.run_id, reason))
        for file, lease_id, pids in self._old_records({record.lease_id for record in records}, tagged):
            for pid in pids - known:
                reason = f"is named by {file} of an earlier version of mlcd, without a proof"
                found.setdefault(pid, self._process(pid, lease_id, file.parents[2].name, reason))
        return (*files, *(found[pid] for pid in sorted(found)))

    def _own_records(self) -> list[LeaseRecord]:
        return [record for record in self.records.all()[0] if record.cloud == self.cloud]

    def _old_records(
        self, known: set[str], tagged: Mapping[str, Sequence[int]]
    ) -> Iterator[tuple[Path, str, set[int]]]:
        """(file, lease, running processes that it names) of leases that an earlier version recorded."""
        for file in sorted(self.home.glob(f"work/*/leases/*/{OLD_RECORD}")):
            if (lease_id := file.parent.name) in known:
                continue
            try:
                fields = Fields(read_json(file), str(file))
                if fields.text("cloud") == self.cloud:
                    named = {pid for pid, start in map(_pair, fields.items("agents")) if processes.is_alive(pid, start)}
                    yield file, lease_id, named | set(tagged.get(lease_id, ()))
            except (Malformed, OSError):  # a job may write whatever it likes there
                continue

    def _process(self, pid: int, lease_id: str, run_id: str, reason: str) -> Unproved:
        what = f"pid {pid} ({processes.command_of(pid)})"
        return Unproved(cloud=self.cloud, lease_id=lease_id, run_id=run_id, what=what, reason=reason, pid=pid)

    def _forget(self, record: LeaseRecord) -> None:
        """Delete the record of a lease that has ended; it stays while something may still belong to it."""
        here = record.is_here
        if here and any(True for _ in suspects(record, processes.tagged(record.lease_id), set())):
            return
        with suppress(OSError):  # a disk that cannot be written keeps a record of nothing
            self.records.forget(record.lease_id)


class HeldLease:
    """A lease that this process holds: what it starts there is recorded, and ended with it."""

    def __init__(self, leases: LocalLeases, record: LeaseRecord, group: TrackingGroup | None) -> None:
        self.leases, self.record, self.group = leases, record, group
        if group is not None:
            try:
                group.create()
            except OSError:  # allowed when it was tried, and no longer
                self.group = None

    def start(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: int,
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
    ) -> "subprocess.Popen[bytes]":
        """Start a process of the lease in a session of its own, in the lease's group. Raises OSError."""
        started = subprocess.Popen(  # noqa: S603 - our own agent or server
            command if self.group is None else joining(self.group.task_files, command),
            env={**env, processes.TAG: self.record.lease_id},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            self._save(self.record.with_agents(started.pid))
        except OSError:
            started.kill()
            started.wait()
            raise
        return started

    def hand_over(self, server: int) -> None:
        """Make a server that outlives this process the lease's owner. Raises OSError."""
        self._save(replace(self.record, owner=ProcessId.of(server)))

    def pids(self) -> list[int]:
        """Its running processes."""
        if self.group is not None:  # much cheaper than reading every environment; nobody leaves it by accident
            return sorted(pid for pid in self.group.pids() if processes.started_at(pid))
        return proved(self.record, processes.tagged(self.record.lease_id))

    def used_seconds(self) -> float | None:
        """CPU seconds of all its processes, running and ended, where the system counts them; else None."""
        return self.group.used_seconds() if self.group is not None else None

    def close(self, *, grace_seconds: float = processes.GRACE_SECONDS) -> None:
        """End all its processes. Idempotent. Raises ProviderError naming those that still run."""
        end_processes(self.record, grace_seconds=grace_seconds)
        self.leases._forget(self.record)

    def _save(self, record: LeaseRecord) -> None:
        self.leases.records.save(record)
        self.record = record


def proved(record: LeaseRecord, tagged: Iterable[int]) -> list[int]:
    """The running processes that are proved to be the lease's; `tagged` are those that carry its name."""
    if not record.is_here:
        return []
    found = {agent.pid for agent in record.agents if agent.is_alive}
    found |= {pid for pid in tagged if _began_with(record, pid) and processes.user_of(pid) == record.user}
    with suppress(OSError):
        found |= {pid for pid in _group(record).pids() if processes.started_at(pid)}
    return sorted(found - {os.getpid()})


def end_processes(record: LeaseRecord, *, grace_seconds: float = processes.GRACE_SECONDS) -> None:
    """End what is proved to be the lease's, asking it to end first. Raises ProviderError naming what still runs."""
    left: list[int] = []
    until = time.monotonic() + END_SECONDS
    while alive := [pid for pid in proved(record, processes.tagged(record.lease_id)) if pid not in left]:
        left += processes.end(alive, grace_seconds=grace_seconds)
        if time.monotonic() > until:  # it starts new ones as fast as they end
            left += proved(record, processes.tagged(record.lease_id))
            break
    if record.is_here:
        with suppress(OSError):  # the group is empty, or what is in it was named above
            left = sorted({*_group(record).end(seconds=2.0 if not left else END_SECONDS), *left})
    left = [pid for pid in left if processes.started_at(pid)]
    if left:
        raise ProviderError(f"{record.lease_id}: cannot end the processes {', '.join(map(str, left))}")


def suspects(record: LeaseRecord, tagged: Iterable[int], known: set[int]) -> Iterator[tuple[int, str]]:
    """(pid, why) of processes that may be the lease's and are not proved to be; without `known` and this process."""
    tagged, folder = set(tagged), os.path.realpath(record.folder)
    passed = {*known, *_with_ancestors(os.getpid()), *proved(record, tagged)}
    sessions, noted = {agent.pid for agent in record.agents}, _noted(record)
    for pid in processes.all_pids():
        if pid in passed or not _began_with(record, pid):
            continue
        if pid in tagged:
            yield pid, "carries the lease's name, but another user started it"
        elif processes.user_of(pid) != record.user:
            continue
        elif processes.session_of(pid) in sessions:
            yield pid, "is of a session that the lease's agent began"
        elif pid in noted:
            yield pid, "was noted by the lease's agent as a process of the job"
        elif where := _works_in(pid, folder):
            yield pid, f"started after the lease began, and {where} in its folder"


def _group(record: LeaseRecord) -> TrackingGroup:
    return TrackingGroup(tuple(map(Path, record.groups)))


def _began_with(record: LeaseRecord, pid: int) -> bool:
    """Whether the process started after the lease began; a start is rounded down to a tick."""
    ticks = processes.started_ticks(pid)
    return ticks is not None and ticks + 1 >= record.began_ticks


def _noted(record: LeaseRecord) -> set[int]:
    """Running processes that the lease's agents noted. The job can write these files: they prove nothing."""
    found = set()
    for file in Path(record.folder).glob(f"node-*/{NOTES_FILE}"):
        with suppress(Malformed, OSError):
            pairs = map(_pair, Fields(read_json(file), str(file)).items("processes", most=_MOST_NOTED))
            found |= {pid for pid, start in pairs if processes.is_alive(pid, start)}
    return found


def _pair(value: object) -> tuple[int, str]:
    """(pid, start) as a list of two; raises Malformed."""
    if not isinstance(value, list) or len(value) != 2:
        raise Malformed("", "a process should be a list of a pid and a start")
    fields = Fields({"pid": value[0], "start": value[1]})
    return fields.whole("pid", least=1, most=2**31), fields.text("start", most_characters=64)


def _works_in(pid: int, folder: str) -> str:
    """What connects a process with a folder: "works", "runs a program" or "has a file open"; "" for nothing."""
    for name, what in (("cwd", "works"), ("exe", "runs a program")):
        if _leads_into(f"/proc/{pid}/{name}", folder):
            return what
    with suppress(OSError):
        if any(_leads_into(f"/proc/{pid}/fd/{name}", folder) for name in os.listdir(f"/proc/{pid}/fd")):  # noqa: PTH208
            return "has a file open"
    return ""


def _leads_into(link: str, folder: str) -> bool:
    with suppress(OSError):
        target = os.readlink(link).removesuffix(" (deleted)")  # noqa: PTH115 - of a descriptor, not of a path
        return target == folder or target.startswith(f"{folder}/")
    return False


def _with_ancestors(pid: int) -> set[int]:
    found = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        pid = processes.parent_of(pid)
    return found


def _is_of_an_earlier_boot(record: LeaseRecord) -> bool:
    """Whether its machine was this one, before it was started anew: then nothing of it runs."""
    own = LeaseRecord(lease_id=record.lease_id, cloud=record.cloud, folder=record.folder)
    then, now = record.machine.split(" "), own.machine.split(" ")
    return record.host == own.host and len(then) > 1 and len(now) > 1 and then[1] != now[1]
