"""The database of one machine: one SQLite file in WAL mode under $MLCD_HOME, or one in memory."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from mlcd.errors import StoreError
from mlcd.store.backups import back_up
from mlcd.store.damage import DamagedStore, NotWritable, damaged, damaged_run, explained, explained_os
from mlcd.store.database import Connection, Locks
from mlcd.store.file_locks import FileLocks
from mlcd.store.migration import FIRST_SCHEMA, migrate, missing_columns, schema_in
from mlcd.store.opening import BUSY_SECONDS, FILE, connect, is_database, new_copy_folder, open_copy, open_in
from mlcd.store.place import Place, place_of, was_removed
from mlcd.store.rows import UNREADABLE

SCHEMA = 8
"""Schema 1 was used before the first release; 2 to 5 by version 0.1, which had tables for each kind of step. Schema 6
had the values of environment variables in the job's text, and no digests; schema 7 counted a run's rows only when its
status changed."""
CHECKED_BYTES = 64 * 2**20
"""A larger store is only checked quickly before money is spent: a check reads it once."""
T = TypeVar("T")


class SqliteDatabase:
    """See Database."""

    shared = False
    errors: tuple[type[Exception], ...] = UNREADABLE

    def __init__(self, folder: Path | None, *, reading: bool = False, busy_seconds: float = BUSY_SECONDS) -> None:
        """Open or create the file in `folder`; None keeps it in memory. Raises StoreError.

        reading       only to read: works in a folder that cannot be written, too, where a copy is read
        busy_seconds  how long to wait for other processes that have locked the file
        """
        self.folder = folder
        self._busy_seconds = busy_seconds
        self.path = folder / FILE if folder else None
        self.where = str(self.path or "the store in memory")
        self.locks: Locks | None = FileLocks(folder, self._is_recorded) if folder else None
        self._copy: Path | None = None
        self._place: Place | None = None
        try:
            self._explaining(self._open)
        except StoreError as error:
            is_closed_to_us = isinstance(error, NotWritable) or "disk is full" in str(error)
            if not (reading and is_closed_to_us and folder is not None and folder.is_dir()):
                raise
            self._explaining(self._open_copy, folder)

    def _explaining(self, work: Callable[..., None], *values: object) -> None:
        try:
            work(*values)
        except (OSError, *UNREADABLE) as error:
            raise (self.explained(error, None) or error) from error

    def _open(self) -> None:
        self.db = open_in(self.folder, self._busy_seconds) if self.folder else connect(None)
        self._place = place_of(self.path) if self.path else None
        try:
            self._prepare(self.path)
        except BaseException:
            self.db.close()
            raise

    def _open_copy(self, folder: Path) -> None:
        self._copy = new_copy_folder()
        self.db = open_copy(folder, self._copy)
        self._prepare(self._copy / FILE)

    def write(self, work: Callable[[Connection], T]) -> T:
        """See Database."""
        try:
            self.db.execute("BEGIN IMMEDIATE")
            done = work(self.db)
            self.db.execute("COMMIT")
        finally:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
        if self.path and self._place and was_removed(self.db, self.path, self._place):
            self.db.close()  # first: it removes files beside its own, by their names
            self._open()
        return done

    def read(self, work: Callable[[Connection], T]) -> T:
        """See Database."""
        self.db.execute("BEGIN")
        try:
            return work(self.db)
        finally:
            self.db.execute("ROLLBACK")

    def changes(self) -> int:
        """See Database."""
        with closing(self.db.execute("PRAGMA data_version")) as cursor:
            return int(cursor.fetchone()[0])

    def is_as_opened(self) -> bool:
        """See Database: the same file, a database, of this schema. A copy shows what was when it was made."""
        if self._copy is not None:
            return False
        if self.path is None:
            return True
        return place_of(self.path) == self._place and is_database(self.path) and self._version() == SCHEMA

    def check(self) -> None:
        """See Database: reads the whole file."""
        if self.path is None:
            return
        pragma = "integrity_check" if self.path.stat().st_size <= CHECKED_BYTES else "quick_check"
        with closing(self.db.execute(f"PRAGMA {pragma}(1)")) as cursor:
            (answer,) = cursor.fetchone()
        if answer != "ok":
            raise damaged(self.path, str(answer))

    def back_up(self, *, paid: bool) -> None:
        """See Database."""
        if self.path is not None:
            back_up(self.path, paid=paid)

    def explained(self, error: Exception, run_id: str | None) -> StoreError | None:
        """See Database."""
        if isinstance(error, OSError):
            return explained_os(error, self.path)
        if not isinstance(error, UNREADABLE):
            return None if run_id is None else damaged_run(self.path, run_id, str(error))
        found = explained(error, self.path)
        if run_id is not None and isinstance(found, DamagedStore):
            return damaged_run(self.path, run_id, found.what)
        return found

    def close(self) -> None:
        """See Database."""
        self.db.close()
        if self._copy is not None:
            shutil.rmtree(self._copy, ignore_errors=True)

    # ---- the schema

    def _prepare(self, path: Path | None) -> None:
        if path:
            self.db.execute("PRAGMA journal_mode = WAL")
            self.db.execute("PRAGMA synchronous = FULL")
        version = self._version()
        if version not in (0, SCHEMA) and version < FIRST_SCHEMA:
            raise StoreError(
                f"{self.path} was written by a version before the first release (schema {version}, this one needs"
                f" {SCHEMA}): move the file away to start afresh, or set MLCD_HOME to another folder"
            )
        if version > SCHEMA:
            raise StoreError(
                f"{self.path} was written by a newer mlcd (schema {version}, this one knows {SCHEMA}): upgrade mlcd, or"
                " set MLCD_HOME to another folder; if there was no newer mlcd, the file is damaged, and"
                " `mlcd runs --restore` saves its runs"
            )
        if (found := schema_in(self.db)) not in (version, None):
            if self._version() != version:  # another process made or migrated it just now
                self._prepare(path)
                return
            raise damaged(self.path, f"it says that it has schema {version}, but its tables are of schema {found}")
        if version == 0:
            self.write(lambda _: self._create())
        elif version < SCHEMA and path:
            self.write(lambda _: self._migrate(path, version))
            self._vacuum()
        for table, column, _ in missing_columns(self.db, create_tables)[:1]:
            raise damaged(self.path, f"its table {table} lacks the column {column}")
        self.db.execute("PRAGMA foreign_keys = ON")

    def _create(self) -> None:
        if self._version() == 0:  # another process may have been faster
            create_tables(self.db)

    def _migrate(self, path: Path, version: int) -> None:
        if self._version() == version:
            migrate(self.db, path, version, create_tables)

    def _vacuum(self) -> None:
        """Drop free pages after a migration: they may hold what was deleted."""
        with suppress(*UNREADABLE):
            self.db.execute("PRAGMA busy_timeout = 100")
            self.db.execute("VACUUM")
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.db.execute(f"PRAGMA busy_timeout = {int(self._busy_seconds * 1000)}")

    def _version(self) -> int:
        with closing(self.db.execute("PRAGMA user_version")) as cursor:
            return int(cursor.fetchone()[0])

    def _is_recorded(self, run_id: str) -> bool:
        """Whether there is a run of this name; True also where that cannot be told."""
        with suppress(*UNREADABLE):
            return self.db.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is not None
        return True


def create_tables(db: sqlite3.Connection) -> None:
    """The tables of this schema in an empty database, inside the caller's transaction."""
    for statement in files("mlcd.store").joinpath("schema.sql").read_text(encoding="utf-8").split(";\n"):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {SCHEMA}")
