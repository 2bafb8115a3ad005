"""One process at a time works on a run, on whichever machine: PostgreSQL's advisory locks, which end with a connection.

The file of the home is locked as well. So a server that restarts, and forgets its locks, leaves no moment in which a
second process could begin to work on the files of a run.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Protocol, TypeVar

from mlcd.errors import RunBusy
from mlcd.store.database import Connection
from mlcd.store.file_locks import FileLocks, busy

RELEASE_SECONDS = 2.0
"""How long the server may take to notice that a process has died."""
_POLL_SECONDS = 0.05
T = TypeVar("T")
Work = Callable[[Connection], None]


class Doing(Protocol):
    """Does some work on a connection."""

    def __call__(self, work: Callable[[Connection], T], /) -> T:
        """What the work returns."""
        ...


class AdvisoryLocks:
    """See Locks.

    do           does some work on the connection that holds the locks, which it makes again where it was lost
    do_if_there  the same, but only where there is a connection: a lost one holds nothing
    """

    def __init__(self, files: FileLocks, do: Doing, do_if_there: Callable[[Work], None]) -> None:
        self._files, self._do, self._do_if_there = files, do, do_if_there
        self._held: list[str] = []

    @contextmanager
    def held(self, run_id: str) -> Iterator[None]:
        """See Locks. Raises OSError where the home cannot be written, and the database's errors."""
        if run_id in self._held:
            raise busy(run_id)
        with self._files.held(run_id):
            self._do(lambda db: _take(db, run_id))
            self._held.append(run_id)
            try:
                yield
            finally:
                self._held.remove(run_id)
                self._do_if_there(lambda db: _release(db, run_id))

    def is_held(self, run_id: str) -> bool:
        """See Locks; asks without holding it."""
        return self._do(lambda db: _is_held(db, run_id))

    def owner(self, run_id: str) -> int | None:
        """See Locks."""
        return self._files.owner(run_id)

    def retake(self, db: Connection) -> None:
        """Take the locks of a lost connection again. Raises RunBusy where another process was faster."""
        for run_id in self._held:
            try:
                _take(db, run_id)
            except RunBusy as error:
                raise RunBusy(
                    f"the connection was lost, and another mlcd process now works on run {run_id}: this one stops"
                ) from error


def _key(run_id: str) -> int:
    return int.from_bytes(blake2b(f"mlcd run {run_id}".encode(), digest_size=8).digest(), "big", signed=True)


def _take(db: Connection, run_id: str) -> None:
    until = time.monotonic() + RELEASE_SECONDS
    while not db.execute("SELECT pg_try_advisory_lock(?) AS taken", (_key(run_id),)).fetchone()["taken"]:
        if time.monotonic() > until:
            raise busy(run_id)
        time.sleep(_POLL_SECONDS)


def _release(db: Connection, run_id: str) -> None:
    db.execute("SELECT pg_advisory_unlock(?)", (_key(run_id),))


def _is_held(db: Connection, run_id: str) -> bool:
    high, low = divmod(_key(run_id) % 2**64, 2**32)
    query = """
        SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND classid = ? AND objid = ?
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    """
    return db.execute(query, (high, low)).fetchone() is not None
