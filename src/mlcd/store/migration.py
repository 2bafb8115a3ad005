"""Migrates a home of an earlier schema to today's: when it is first opened, in one transaction.

Schemas 2 to 5 are version 0.1's, with other tables. Schema 6 had the values of environment variables in the job's text
and no digests. Schema 7 had the count of a run's rows in its statuses, and no watched trainings.

Before any change, the database is copied to `mlcd.sqlite3.schemaN.bak`, without those values. If the process is killed
at any point, the home is either still the old one or completely the new one, and a copy of that name is always
complete.
"""

import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mlcd.errors import SpecError, StoreError
from mlcd.home import close_tree, envs
from mlcd.spec.env_values import without_env_values
from mlcd.store.backups import copy_database, remove, sync
from mlcd.store.damage import damaged, damaged_run
from mlcd.store.from_0_1 import OldRun, Row, converted
from mlcd.store.rows import (
    COUNTS,
    DIGEST,
    FACTS,
    TABLES,
    UNREADABLE,
    DamagedRow,
    checked,
    count_rows,
    digest,
    seal,
    set_count,
)
from mlcd.trial.outcome import Status

FIRST_SCHEMA = 2
"""The oldest schema that can be migrated."""
_LAST_0_1, _NO_DIGESTS, _COUNTS_IN_STATUSES = 5, 6, 7
_BUSY_SECONDS = 1.0
"""A lock held for longer means that a process works on the run; `mlcd runs` holds each lock only briefly."""
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""As mlcd gives them; a damaged store may hold others, such as `/`."""
_NOT_AS_WRITTEN = (
    KeyError, ValueError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError
)  # fmt: skip
"""What values that no mlcd wrote lead to where they are converted."""
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


def schema_in(db: sqlite3.Connection) -> int | None:
    """The schema that the tables are of, if it can be told: 0 for no table, 6, 7 or 8; None for version 0.1's."""
    found = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    if not found:
        return 0
    if "trials_started" in found:
        return None
    if not found >= set(FACTS):
        return -1
    if COUNTS in found:
        return _COUNTS_IN_STATUSES + 1
    columns = {row["name"] for row in db.execute("PRAGMA table_info(runs)").fetchall()}
    return _COUNTS_IN_STATUSES if DIGEST in columns else _NO_DIGESTS


def migrate(
    db: sqlite3.Connection, path: Path, version: int, create_tables: Callable[[sqlite3.Connection], None]
) -> None:
    """Migrate the database at `path` from schema `version` to today's, inside the caller's write transaction.

    Foreign keys must not be enforced yet. Raises StoreError if a process works on one of its runs, because that process
    is an older version and could no longer record what it pays for. Also raises StoreError for data that is not of that
    version.
    """
    with _old_rows(path):
        _refuse_live_runs(db, path)
        _back_up(path, path.with_name(f"{path.name}.schema{version}.bak"))
        if version == _COUNTS_IN_STATUSES:
            _from_7(db, create_tables)
        else:
            _from_6(db, path, version, create_tables)
    for backup in path.parent.glob(f"{path.name}.schema*.bak"):
        _strip_backup(backup)
    for (run_id,) in db.execute("SELECT run_id FROM runs").fetchall():
        _close_files(path.parent, str(run_id))


@contextmanager
def _old_rows(path: Path) -> Iterator[None]:
    """Whatever goes wrong with the values of rows is damage: rows of earlier schemas have no digests to tell it by."""
    try:
        yield
    except UNREADABLE:
        raise  # SQLite says more about what is wrong
    except _NOT_AS_WRITTEN as error:
        raise damaged(path, f"rows of an earlier version of mlcd are not as it wrote them ({error!r})") from error


def _close_files(home: Path, run_id: str) -> None:
    """Close the files of a run to others; nothing else in `work`, which may be a folder of the user's own."""
    close_tree(home / "work" / run_id)


def _from_7(db: sqlite3.Connection, create_tables: Callable[[sqlite3.Connection], None]) -> None:
    """Move the count of a run's rows from its statuses to a table. A row that is damaged, or missing, stays so."""
    _add_columns(db, create_tables)
    for (run_id,) in db.execute("SELECT run_id FROM runs").fetchall():
        count = count_rows(db, run_id)
        statuses = db.execute("SELECT * FROM statuses WHERE run_id = ? ORDER BY id", (run_id,)).fetchall()
        for row in statuses[-1:]:
            expected = dict(row).get("row_count")
            count = max(count, expected) if isinstance(expected, int) else count
        for row in statuses:
            with suppress(DamagedRow):
                kept = {name: value for name, value in checked(dict(row)).items() if name not in ("row_count", DIGEST)}
                db.execute(f"UPDATE statuses SET {DIGEST} = ? WHERE id = ?", (digest(kept), row["id"]))  # noqa: S608
        set_count(db, run_id, count)
    db.execute("ALTER TABLE statuses DROP COLUMN row_count")


def _from_6(
    db: sqlite3.Connection, path: Path, version: int, create_tables: Callable[[sqlite3.Connection], None]
) -> None:
    """From schema 6 or one of version 0.1, whose rows had no digests."""
    if version <= _LAST_0_1:
        _from_0_1(db, path, create_tables)
    else:
        _add_columns(db, create_tables)
    for run_id, values in _strip_env_values(db).items():
        if _is_final(db, run_id):
            envs.forget(path.parent, run_id)
        else:
            envs.keep(path.parent, run_id, values)
    for (run_id,) in db.execute("SELECT run_id FROM runs").fetchall():
        set_count(db, run_id, count_rows(db, run_id))
    seal(db)


def _from_0_1(db: sqlite3.Connection, path: Path, create_tables: Callable[[sqlite3.Connection], None]) -> None:
    present = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    old = [table for table in _TABLES if table in present]
    db.execute("DROP INDEX IF EXISTS statuses_by_run")
    for table in old:
        db.execute(f"ALTER TABLE {table} RENAME TO {_OLD}{table}")
    create_tables(db)
    for (run_id,) in db.execute(f"SELECT run_id FROM {_OLD}runs ORDER BY rowid").fetchall():  # noqa: S608 - a constant
        _migrate_run(db, path, run_id, old)
    db.execute(f"INSERT INTO statuses (id, run_id, status, at) SELECT id, run_id, status, at FROM {_OLD}statuses")  # noqa: S608
    db.execute(
        "INSERT INTO statuses (run_id, status, at) SELECT run_id, ?, 0.0 FROM runs"
        " WHERE run_id NOT IN (SELECT run_id FROM statuses)",
        (Status.RUNNING.value,),
    )
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


def _add_columns(db: sqlite3.Connection, create_tables: Callable[[sqlite3.Connection], None]) -> None:
    """Give the tables of schema 6 or 7 what today's have in addition."""
    with closing(sqlite3.connect(":memory:")) as today:
        create_tables(today)
        version = today.execute("PRAGMA user_version").fetchone()[0]
        (counts,) = today.execute("SELECT sql FROM sqlite_master WHERE name = ?", (COUNTS,)).fetchone()
    db.execute(counts)
    for table, _, definition in missing_columns(db, create_tables):
        db.execute(f"ALTER TABLE {table} ADD COLUMN {definition}")
    db.execute(f"PRAGMA user_version = {version}")


def missing_columns(
    db: sqlite3.Connection, create_tables: Callable[[sqlite3.Connection], None]
) -> list[tuple[str, str, str]]:
    """(table, column, definition) of every column that today's tables have and those of `db` lack."""
    found = []
    with closing(sqlite3.connect(":memory:")) as today:
        create_tables(today)
        for table in TABLES:
            present = {row["name"] for row in db.execute(f"PRAGMA table_info({table})").fetchall()}
            for _, name, kind, is_required, default, _ in today.execute(f"PRAGMA table_info({table})").fetchall():
                if name not in present:
                    required = " NOT NULL" if is_required else ""
                    value = f" DEFAULT {default}" if default is not None else ""
                    found.append((table, name, f"{name} {kind}{required}{value}"))
    return found


# ---- values of environment variables


def _strip_env_values(db: sqlite3.Connection) -> dict[str, dict[str, str]]:
    """Replace the values of environment variables in every job's text by null; return them by run."""
    found: dict[str, dict[str, str]] = {}
    for run_id, spec in db.execute("SELECT run_id, spec FROM runs").fetchall():
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError, SpecError):  # not of mlcd
            data = json.loads(spec)
            source, values = without_env_values(data["source"])
            if values:
                text = json.dumps({**data, "source": source, "envs": sorted(values)}, separators=(",", ":"))
                db.execute("UPDATE runs SET spec = ? WHERE run_id = ?", (text, run_id))
                found[run_id] = values
    return found


def _strip_backup(backup: Path) -> None:
    """The same in a copy that was made before; one that is not a database stays as it is."""
    with suppress(OSError, *UNREADABLE):
        if backup.is_symlink() or not backup.is_file():
            return
        with closing(sqlite3.connect(backup, isolation_level=None)) as db:
            db.execute("PRAGMA secure_delete = ON")
            db.execute("BEGIN IMMEDIATE")
            found = _strip_env_values(db)
            db.execute("COMMIT")
            if found:
                db.execute("VACUUM")


def _is_final(db: sqlite3.Connection, run_id: str) -> bool:
    row = db.execute("SELECT status FROM statuses WHERE run_id = ? ORDER BY id DESC LIMIT 1", (run_id,)).fetchone()
    try:
        return row is not None and Status(row[0]).is_final
    except ValueError:
        return False


def _migrate_run(db: sqlite3.Connection, path: Path, run_id: str, present: Sequence[str]) -> None:
    try:
        new = converted(_old_run(db, run_id, present))
    except UNREADABLE:
        raise
    except _NOT_AS_WRITTEN as error:
        raise StoreError(
            f"{path}: run {run_id} cannot be migrated to this version ({error!r}); the file is unchanged:"
            " use the mlcd that wrote it, or set MLCD_HOME to another folder"
        ) from error
    for table, rows in (
        ("runs", [new.run]),
        ("steps_started", new.started),
        ("steps_ended", new.ended),
        ("verdicts", new.verdicts),
    ):
        for row in rows:
            _check_finite(path, run_id, row)
            _insert(db, table, row)


def _check_finite(path: Path, run_id: str, row: Mapping[str, Any]) -> None:
    """Only an authorisation may be without end."""
    for name, value in row.items():
        if isinstance(value, float) and not math.isfinite(value) and name != "authorised_seconds":
            raise damaged_run(path, run_id, f"{name} is {value}")


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

    run = next(iter(rows("runs")), None)
    if run is None:
        raise ValueError("its row is not in the index")
    return OldRun(
        run=run,
        trials=steps("trials", "number"),
        finals=steps("finals", "attempt"),
        epochs=steps("epochs", "go"),
        verdict=next(iter(rows("verdicts")), None),
        training_ended=next(iter(rows("trainings_ended")), None),
    )


def _refuse_live_runs(db: sqlite3.Connection, path: Path) -> None:
    """Also refuses names that mlcd did not give: files of the home are found by them."""
    folder = path.parent
    for (run_id,) in db.execute("SELECT run_id FROM runs NOT INDEXED").fetchall():
        if not isinstance(run_id, str) or not _RUN_NAME.fullmatch(run_id):
            raise damaged(path, "a run has a name that mlcd does not give")
        file = folder / "locks" / f"{run_id}.lock"
        if not file.exists():
            continue
        lock = FileLock(file)
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
        remove(partial)
        copy_database(path, partial)
        _strip_backup(partial)
        sync(partial)
        partial.rename(backup)
        sync(backup.parent)
    finally:
        remove(partial)
