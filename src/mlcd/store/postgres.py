"""The database of a team: a PostgreSQL server, with the tables of postgres.sql in the schema `mlcd`.

A lost connection is made again for RECONNECT_SECONDS and the work is done again: unless it was committed, which is
looked up in `last_writes`. (The server's own transaction numbers do not tell: after a crash it may give one again.)
"""

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from mlcd.errors import BadInput, MissingExtra, StoreError
from mlcd.extras import missing_text
from mlcd.store.address import ALLOWED, Address, parsed
from mlcd.store.advisory_locks import AdvisoryLocks
from mlcd.store.damage import NotWritable, explained_os
from mlcd.store.database import Connection, Locks
from mlcd.store.file_locks import FileLocks
from mlcd.store.rows import COUNTS, TABLES
from mlcd.store.sqlite import SCHEMA

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
    from psycopg.rows import dict_row
except ImportError as error:
    raise MissingExtra(missing_text("postgres", "a store on PostgreSQL")) from error

from mlcd.store.postgres_errors import Unreachable, damaged_run, explained, gone, is_lost, not_connected

RECONNECT_SECONDS = 60.0
"""How long to try to connect again, while what was started goes on: a server that crashed is up again by then."""
CONNECT_SECONDS = 10
OLDEST_SERVER = 12
NAMESPACE = "mlcd"
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.05, 2.0
_DIALECT = (("?", "%s"), (" NOT INDEXED", ""))
"""SQLite's words, and ours. No query has these characters in a text of its own."""
_SESSION = """
    SET search_path = mlcd;
    SET lock_timeout = '30s';
    SET idle_in_transaction_session_timeout = '60s';
    SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3;
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
"""
"""A process that hangs, or whose machine is gone, frees its locks; what was recorded survives a crash of the server."""
_NUMBERED = """
    INSERT INTO last_writes (session, number) VALUES (?, ?)
    ON CONFLICT (session) DO UPDATE SET number = excluded.number, at = now() RETURNING pg_backend_pid() AS pid
"""
_FORGET = "DELETE FROM last_writes WHERE session = ? OR at < now() - interval '7 days'"
_SESSION_14 = "SET idle_session_timeout = 0; SET client_connection_check_interval = '2s'"
T = TypeVar("T")


class Session:
    """One connection, in SQLite's dialect. See Connection."""

    def __init__(self, raw: "psycopg.Connection[dict[str, Any]]") -> None:
        self.raw = raw
        self.pid = raw.info.backend_pid

    def execute(self, query: str, values: Sequence[object] = (), /) -> "Found":
        """See Connection."""
        for theirs, ours in _DIALECT:
            query = query.replace(theirs, ours)
        plain = [int(value) if isinstance(value, bool) else value for value in values]
        return Found(self.raw.execute(query, plain))

    def roll_back(self) -> None:
        """End a transaction that was not committed; a connection that does not answer is closed."""
        try:
            if self.raw.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                self.raw.execute("ROLLBACK")
            elif self.raw.info.transaction_status is not TransactionStatus.IDLE:
                self.raw.close()
        except psycopg.Error:
            self.raw.close()


class Found:
    """The rows of a query, without the number by which PostgreSQL keeps runs in order. See Result."""

    def __init__(self, cursor: "psycopg.Cursor[dict[str, Any]]") -> None:
        self.cursor = cursor

    def fetchone(self) -> dict[str, Any] | None:
        """See Result."""
        row = self.cursor.fetchone()
        return None if row is None else _plain(row)

    def fetchall(self) -> list[dict[str, Any]]:
        """See Result."""
        return [_plain(row) for row in self.cursor.fetchall()]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    row.pop("rowid", None)
    return row


class PostgresDatabase:
    """See Database."""

    shared = True
    errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        reading: bool = False,
        reconnect_seconds: float | None = None,
        what: str = "MLCD_STORE",
    ) -> None:
        """Connect to the server; its tables must be there (`mlcd store init`). Raises BadInput, StoreError.

        folder   the home, for what stays on this machine
        reading  only to read: nothing can be written through this connection
        reconnect_seconds  how long a lost connection is made again; None: RECONNECT_SECONDS
        what     where the address came from, for messages
        """
        self._reconnect_seconds = reconnect_seconds
        self.address = parsed(url, what)
        self.where = self.address.where
        self._advisory = AdvisoryLocks(FileLocks(folder, self._is_recorded), self._retried, self._done_if_there)
        self.locks: Locks | None = self._advisory
        self._reading = reading
        self._token = f"mlcd-{secrets.token_hex(8)}"
        self._session: Session | None = None
        self._is_down = False
        self._writes = 0
        self._role = ""
        try:
            self._session = self._opened()
            check_schema(self._session, self.address)
        except BaseException:
            self.close()
            raise

    def write(self, work: Callable[[Connection], T]) -> T:
        """See Database."""
        return self._retried(lambda session: self._written(session, work))

    def read(self, work: Callable[[Connection], T]) -> T:
        """See Database."""

        def done(session: Session) -> T:
            try:
                session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return work(session)
            finally:
                session.roll_back()

        return self._retried(done)

    def changes(self) -> int:
        """See Database."""
        query = f"SELECT coalesce(sum(row_count), 0) AS rows FROM {COUNTS}"  # noqa: S608 - a name
        found = self.read(lambda db: db.execute(query).fetchone())
        return int(found["rows"])

    def is_as_opened(self) -> bool:
        """See Database: a lost connection is made again."""
        return True

    def check(self) -> None:
        """See Database: whether this role may write every table, and the server can."""
        lacking = self.read(_not_insertable)
        if lacking:
            raise NotWritable(
                f"{self.where}: role {self._role} may only read this store (no INSERT on {', '.join(lacking)}); the"
                f" store's owner can allow more: mlcd store init --spender {self._role}"
            )
        state = self.read(lambda db: db.execute("SELECT pg_is_in_recovery() AS standby").fetchone())
        if state["standby"]:
            raise NotWritable(f"{self.where}: the server is a standby, which is read-only: use the primary's address")

    def back_up(self, *, paid: bool) -> None:
        """See Database: none; the server has backups of its own (pg_dump, or its archive)."""

    def explained(self, error: Exception, run_id: str | None) -> StoreError | None:
        """See Database."""
        if isinstance(error, psycopg.Error):
            raw = self._session.raw if self._session else None
            return None if is_lost(error, raw) else explained(error, self.address, self._role)
        if isinstance(error, OSError):
            return explained_os(error, None)
        return None if run_id is None else damaged_run(self.address, run_id, str(error))

    def close(self) -> None:
        """See Database."""
        if self._session is not None:
            if self._writes:
                self._done_if_there(self._forget)
            self._session.raw.close()

    # ---- transactions

    def _written(self, session: Session, work: Callable[[Connection], T]) -> T:
        number = self._writes = self._writes + 1
        try:
            session.execute("BEGIN")
            done = work(session)
            found = session.execute(_NUMBERED, (self._token, number)).fetchone()
            if found is None or found["pid"] != session.pid:
                raise StoreError(
                    f"{self.where}: a pooler changes the connection between transactions, so that locks do not hold:"
                    " connect directly, or with pool_mode=session"
                )
            try:
                answer = session.execute("COMMIT").cursor.statusmessage
            except psycopg.Error as error:
                if is_lost(error, session.raw) and self._retried(lambda again: self._last_write(again) == number):
                    return done
                raise
        finally:
            session.roll_back()
        if answer != "COMMIT":
            raise StoreError(f"{self.where}: the server rolled the change back ({answer})")
        return done

    def _forget(self, session: Session) -> None:
        session.execute(_FORGET, (self._token,))

    def _last_write(self, session: Session) -> int:
        """The number of the last change of this process that was committed."""
        row = session.execute("SELECT number FROM last_writes WHERE session = ?", (self._token,)).fetchone()
        return 0 if row is None else int(row["number"])

    def _retried(self, work: Callable[[Session], T]) -> T:
        """Do `work`; again, on a new connection, where the last one was lost. Raises Unreachable if there is none."""
        until: float | None = None
        wait = _FIRST_WAIT_SECONDS
        while True:
            session: Session | None = None
            try:
                session = self._connected()
                done = work(session)
            except (psycopg.Error, Unreachable) as error:
                if isinstance(error, psycopg.Error) and not is_lost(error, session.raw if session else None):
                    raise
                if isinstance(error, Unreachable) and session is not None:
                    raise  # of work inside this one, which has waited long enough
                if session is not None:
                    session.raw.close()
                now = time.monotonic()
                patience = RECONNECT_SECONDS if self._reconnect_seconds is None else self._reconnect_seconds
                until = now + (0.0 if self._is_down else patience) if until is None else until
                if now >= until:
                    self._is_down = True
                    raise gone(self.address, error, patience) from error
                time.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
            else:
                self._is_down = False
                return done

    def _done_if_there(self, work: Callable[[Session], None]) -> None:
        if self._session is not None and not self._session.raw.closed:
            with suppress(psycopg.Error):
                work(self._session)

    def _connected(self) -> Session:
        if self._session is None or self._session.raw.closed:
            session = self._opened()
            try:
                self._end_lost_session(session)
                self._advisory.retake(session)
            except BaseException:
                session.raw.close()
                raise
            self._session = session
        return self._session

    def _end_lost_session(self, session: Session) -> None:
        """End this process's last session, where the server has not noticed that its connection is gone."""
        others = "FROM pg_stat_activity WHERE application_name = ? AND pid <> pg_backend_pid()"
        session.execute(f"SELECT pg_terminate_backend(pid) {others} AND usename = current_user", (self._token,))
        until = time.monotonic() + CONNECT_SECONDS
        while session.execute(f"SELECT 1 {others}", (self._token,)).fetchone() is not None:
            if time.monotonic() > until:
                raise Unreachable(f"{self.where}: the server keeps a session of this process that was lost")
            time.sleep(_FIRST_WAIT_SECONDS)

    def _opened(self) -> Session:
        raw = connected(self.address, application_name=self._token)
        try:
            raw.execute(_SESSION)
            if raw.info.server_version >= 140_000:
                raw.execute(_SESSION_14)
            if self._reading:
                raw.execute("SET default_transaction_read_only = on")
        except psycopg.Error as error:
            raw.close()
            raise not_connected(error, self.address) from error
        self._role = raw.info.user
        return Session(raw)

    def _is_recorded(self, run_id: str) -> bool:
        """Whether there is a run of this name; True also where that cannot be told."""
        with suppress(StoreError, psycopg.Error):
            query = "SELECT 1 FROM runs WHERE run_id = ?"
            return self.read(lambda db: db.execute(query, (run_id,)).fetchone() is not None)
        return True


def connected(address: Address, **parameters: str) -> "psycopg.Connection[dict[str, Any]]":
    """A connection outside of transactions. Raises StoreError, BadInput."""
    try:
        given = conninfo_to_dict(address.url)
    except psycopg.Error:  # its text quotes the address, with the password
        raise BadInput(f"{address.where}: is not an address that PostgreSQL knows; allowed: {ALLOWED}") from None
    wanted: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, "tcp_user_timeout": 30_000, **given, **parameters}
    try:
        raw = psycopg.connect(**wanted, autocommit=True, prepare_threshold=None, row_factory=dict_row)
    except psycopg.Error as error:
        raise not_connected(error, address) from error
    if raw.info.server_version < OLDEST_SERVER * 10_000:
        version = raw.info.server_version // 10_000
        raw.close()
        raise StoreError(f"{address.where}: is PostgreSQL {version}; mlcd needs {OLDEST_SERVER} or newer")
    return raw


def check_schema(session: Session, address: Address) -> None:
    """Raises StoreError unless the tables are there, may be read, and are of this schema."""
    try:
        place = session.execute(
            "SELECT has_schema_privilege(oid, 'USAGE') AS usable FROM pg_namespace WHERE nspname = ?", (NAMESPACE,)
        ).fetchone()
        if place is None:
            raise StoreError(f"{address.where}: has no mlcd store yet; its owner makes it with: mlcd store init")
        role = session.raw.info.user
        if not place["usable"]:
            raise StoreError(
                f"{address.where}: role {role} may not see this store; its owner can allow it: mlcd store init"
                f" --reader {role}"
            )
        row = session.execute("SELECT version FROM store_schema").fetchone()
    except psycopg.Error as error:
        raise explained(error, address, session.raw.info.user) from error
    version = 0 if row is None else int(row["version"])
    if version > SCHEMA:
        raise StoreError(
            f"{address.where} was made by a newer mlcd (schema {version}, this one knows {SCHEMA}): upgrade mlcd"
        )
    if version < SCHEMA:
        raise StoreError(
            f"{address.where} was made by an older mlcd (schema {version}, this one needs {SCHEMA}): with that mlcd,"
            " `mlcd store copy` it into a folder; this one converts the folder and copies it into a new database"
        )


def _not_insertable(db: Connection) -> list[str]:
    """The tables that this role may not add rows to."""
    names = ", ".join(f"('{table}')" for table in TABLES)
    query = f"SELECT name FROM (VALUES {names}) AS t (name) WHERE NOT has_table_privilege(name, 'INSERT')"  # noqa: S608
    return [str(row["name"]) for row in db.execute(query).fetchall()]
