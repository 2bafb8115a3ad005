"""Migrates a home of version 0.1 (schemas 2 to 5) to today's schema: when it is first opened, in one transaction.

Before any change, the database is copied to `mlcd.sqlite3.schemaN.bak`. If the process is killed at any point, the
home is either still the old one or completely the new one, and a copy of that name is always complete.
"""

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mlcd.errors import StoreError
from mlcd.store.from_0_1 import OldRun, Row, converted

SCHEMAS = range(2, 6)
"""The schemas that can be migrated."""
_BUSY_SECONDS = 1.0
"""A lock held for longer means that a process works on the run; `mlcd runs` holds each lock only briefly."""
_OLD = "old_"
_TABLES = (
    "trials_ended", "trials_started", "finals_ended", "finals_started", "epochs_ended", "calls", "epochs_started",
    "trainings_ended", "verdicts", "statuses", "runs",
)  # fmt: skip
"""The tables of version 0.1. A home of schema 2 or 3 may lack those of epochs."""
_CALL_COLUMNS = (
    "shard", "attempt", "memory_mb", "seconds", "usd", "fetch_seconds", "compute_seconds", "update_seconds",
    "waited_seconds", "puts", "gets", "cold", "ending", "peak_mb", "message",
)  # fmt: skip
CLOCK_COLUMNS = (
    ("steps_started", "started_moment", "TEXT"),
    ("steps_ended", "ended_seconds", "REAL"),
    ("steps_ended", "ended_moment", "TEXT"),
)
"""What a home of schema 6 may lack: when steps started and ended, on all clocks."""


def lacking_columns(db: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """The (table, column, type) of CLOCK_COLUMNS that the database does not have."""
    there = {(table, row[1]) for table, _, _ in CLOCK_COLUMNS for row in db.execute(f"PRAGMA table_info({table})")}
    return [column for column in CLOCK_COLUMNS if column[:2] not in there]


def add_columns(db: sqlite3.Connection) -> None:
    """Add them, inside the caller's transaction. Earlier steps have NULL there."""
    for table, column, kind in lacking_columns(db):
        db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")


def migrate(
    db: sqlite3.Connection, path: Path, version: int, create_tables: Callable[[sqlite3.Connection], None]
) -> None:
    """Migrate the database at `path` from schema `version` to today's, inside the caller's write transaction.

    Foreign keys must not be enforced yet. Raises StoreError if a process works on one of its runs, because that process
    is version 0.1 and could no longer record what it pays for. Also raises StoreError for data that is not of version
    0.1.
    """
    _refuse_live_runs(db, path.parent)
    _back_up(path, path.with_name(f"{path.name}.schema{version}.bak"))
    present = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    old = [table for table in _TABLES if table in present]
    db.execute("DROP INDEX IF EXISTS statuses_by_run")
    for table in old:
        db.execute(f"ALTER TABLE {table} RENAME TO {_OLD}{table}")
    create_tables(db)
    for (run_id,) in db.execute(f"SELECT run_id FROM {_OLD}runs ORDER BY rowid").fetchall():  # noqa: S608 - a constant
        _migrate_run(db, path, _old_run(db, run_id, old))
    db.execute(f"INSERT INTO statuses SELECT id, run_id, status, at FROM {_OLD}statuses ORDER BY id")  # noqa: S608
    if "calls" in old:
        db.execute(
            f"INSERT INTO calls (run_id, number, epoch, {', '.join(_CALL_COLUMNS)})"  # noqa: S608 - constants
            f" SELECT c.run_id, c.go, s.number, {', '.join(f'c.{name}' for name in _CALL_COLUMNS)}"
            f" FROM {_OLD}calls c JOIN {_OLD}epochs_started s USING (run_id, go)"
        )
    for table in old:
        db.execute(f"DROP TABLE {_OLD}{table}")
    if db.execute("PRAGMA foreign_key_check").fetchone() is not None:
        raise StoreError(f"{path}: has rows that belong to no run; restore it from a copy, or move it away")


def _migrate_run(db: sqlite3.Connection, path: Path, old: OldRun) -> None:
    try:
        new = converted(old)
    except (KeyError, ValueError, TypeError) as error:
        raise StoreError(
            f"{path}: run {old.run['run_id']} cannot be migrated to this version ({error!r}); the file is unchanged:"
            " use the mlcd that wrote it, or set MLCD_HOME to another folder"
        ) from error
    for table, rows in (
        ("runs", [new.run]),
        ("steps_started", new.started),
        ("steps_ended", new.ended),
        ("verdicts", new.verdicts),
    ):
        for row in rows:
            _insert(db, table, row)


def _insert(db: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))  # noqa: S608 - names


# ---- the old tables


def _old_run(db: sqlite3.Connection, run_id: str, present: Sequence[str]) -> OldRun:
    def rows(table: str) -> list[Row]:
        if table not in present:
            return []
        found = db.execute(f"SELECT * FROM {_OLD}{table} WHERE run_id = ? ORDER BY rowid", (run_id,))  # noqa: S608
        return [dict(row) for row in found.fetchall()]

    def steps(name: str, key: str) -> list[Row]:
        """Each start with the columns of its end, if it has one."""
        ends = {row[key]: row for row in rows(f"{name}_ended")}
        return sorted(({**ends.get(row[key], {}), **row} for row in rows(f"{name}_started")), key=lambda row: row[key])

    (run,) = rows("runs")
    return OldRun(
        run=run,
        trials=steps("trials", "number"),
        finals=steps("finals", "attempt"),
        epochs=steps("epochs", "go"),
        verdict=next(iter(rows("verdicts")), None),
        training_ended=next(iter(rows("trainings_ended")), None),
    )


def _refuse_live_runs(db: sqlite3.Connection, folder: Path) -> None:
    for (run_id,) in db.execute("SELECT run_id FROM runs").fetchall():
        path = folder / "locks" / f"{run_id}.lock"
        if not path.exists():
            continue
        lock = FileLock(path)
        try:
            lock.acquire(timeout=_BUSY_SECONDS)
        except Timeout as error:
            raise StoreError(
                f"{folder}: an older mlcd is working on run {run_id}, and this one would have to convert the folder:"
                " wait for that run or end it, or set MLCD_HOME to another folder"
            ) from error
        lock.release()


# ---- the copy


def _back_up(path: Path, backup: Path) -> None:
    """Make a complete copy at `backup`, or none; an existing copy is kept.

    The caller holds the write lock, so no other process makes a copy now, and what is copied is what will be migrated.
    """
    if backup.exists():
        return
    partial = backup.with_name(f"{backup.name}.partial")
    try:
        _remove(partial)
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(partial)) as copy:
            source.backup(copy)
        _sync(partial)
        partial.rename(backup)
        _sync(backup.parent)
    finally:
        _remove(partial)


def _remove(partial: Path) -> None:
    for name in (partial.name, f"{partial.name}-journal", f"{partial.name}-wal", f"{partial.name}-shm"):
        partial.with_name(name).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Force a file, or a folder's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
