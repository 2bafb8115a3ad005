"""Puts a damaged store right: each run from the damaged file where it can still be read, else from the newest backup.

Nothing is deleted: the damaged file stays beside the new one. Killed at any instant, the store is still the damaged
one, or `restore` completes what was begun.
"""

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from mlcd.errors import BadInput, RunBusy, StoreError
from mlcd.home import close_to_others, private_file
from mlcd.home.envs import FOLDER as ENVS
from mlcd.run.header import is_run_name
from mlcd.store.backups import backups, damage_in, remove, sync
from mlcd.store.damage import date_of, explained, explained_os
from mlcd.store.opening import FILE, RESTORED, check_files, connect
from mlcd.store.rows import (
    COUNTS,
    DIGEST,
    FACTS,
    TABLES,
    UNREADABLE,
    DamagedRow,
    check_count,
    insert,
    insert_numbered,
    select,
)
from mlcd.store.sqlite import create_tables
from mlcd.store.store import Store

_NUMBERED = ("verdicts", "statuses")

Rows = Mapping[str, list[dict[str, object]]]
"""All rows of one run, by table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What became of each run.

    damaged      the damaged file, under its new name
    saved        read from the damaged file
    from_backup  taken from a backup, as they were on `backup_date`: what they paid for later is not recorded
    lost         known by their names alone
    missing      in neither file, but something of them is in the home: what they paid for is not recorded
    """

    damaged: Path
    saved: tuple[str, ...] = ()
    from_backup: tuple[str, ...] = ()
    backup_date: str = ""
    lost: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def restore(folder: Path) -> Restored:
    """Restore the store of a home. Raises BadInput where it is not damaged, RunBusy while a run is live; StoreError."""
    path = folder / FILE
    if not folder.is_dir() or not (path.is_symlink() or path.exists() or backups(folder)):
        raise BadInput(f"there is no store in {folder}: nothing to restore")
    try:
        with _no_live_run(folder):
            if _is_complete(folder / RESTORED):  # but not put in place
                missing = _missing(folder, _names_in(folder / RESTORED))
                return Restored(damaged=_put_in_place(path), missing=missing)
            if _is_intact(folder):
                raise BadInput(f"{path} is not damaged: nothing to restore")
            return _restored(folder, path)
    except UNREADABLE as error:
        raise explained(error, path) from error
    except OSError as error:
        raise explained_os(error, path) from error


def _restored(folder: Path, path: Path) -> Restored:
    with _copy_of(path, folder) as copy:
        saved, unreadable = _sound(folder, *_readable(copy))
    from_backup: dict[str, Rows] = {}
    date = ""
    for backup in reversed(backups(folder)):
        with _copy_of(backup, folder) as copy:
            found, _ = _sound(folder, *_readable(copy))
        date = date or (date_of(backup) if found else "")
        for name, rows in found.items():
            if _size(rows) > max(_size(saved.get(name)), _size(from_backup.get(name))):
                from_backup[name] = rows  # also where the log of the damaged file was lost, and the backup is further
    chosen = {**saved, **from_backup}
    _write(folder / RESTORED, chosen)
    return Restored(
        damaged=_put_in_place(path),
        saved=tuple(name for name in saved if name not in from_backup),
        from_backup=tuple(from_backup),
        backup_date=date if from_backup else "",
        lost=tuple(sorted(unreadable - set(chosen))),
        missing=tuple(name for name in _missing(folder, set(chosen)) if name not in unreadable),
    )


def _is_complete(path: Path) -> bool:
    """Whether it is a whole store. Anything else of that name, which `restore` did not write, is moved away."""
    if not os.path.lexists(path):
        return False
    if stat.S_ISREG(path.lstat().st_mode) and not damage_in(path):
        return True
    path.rename(_free_name(path))
    return False


def _is_intact(folder: Path) -> bool:
    """Looks at a copy: SQLite would change the file itself."""
    path = folder / FILE
    if not path.is_file():
        return False
    try:
        check_files(path)
        with _copy_of(path, folder) as copy, Store(copy.parent, url="") as store:
            store.check()
            return all(not line.damage and store.load(line.run_id) for line in store.runs())
    except StoreError:
        return False


# ---- reading what can be read


@contextmanager
def _copy_of(path: Path, folder: Path) -> Iterator[Path]:
    """A copy of a database with its log, in a folder of its own; of nothing where there is no file."""
    copies = Path(tempfile.mkdtemp(prefix=f".{FILE}-restoring-", dir=folder))
    try:
        for suffix in ("", "-wal"):
            source = path.with_name(path.name + suffix)
            if source.is_file():
                shutil.copyfile(source, copies / f"{FILE}{suffix}")
        yield copies / FILE
    finally:
        shutil.rmtree(copies, ignore_errors=True)


def _readable(path: Path) -> tuple[dict[str, Rows], set[str]]:
    """The runs of a database whose rows are all as mlcd wrote them, and the names of the others."""
    with suppress(StoreError), Store(path.parent, url=""):  # of an earlier schema: migrated
        pass
    readable: dict[str, Rows] = {}
    names: list[str] = []
    with suppress(*UNREADABLE), closing(connect(path)) as db:
        names = _names(db)
        for name in names:
            with suppress(DamagedRow, *UNREADABLE):
                readable[name] = _rows(db, name)
    return readable, set(names) - set(readable)


def _sound(folder: Path, readable: Mapping[str, Rows], unreadable: set[str]) -> tuple[dict[str, Rows], set[str]]:
    """The same without the runs whose rows are whole and make no run: an earlier schema had no digests that tell."""
    trial = Path(tempfile.mkdtemp(prefix=f".{FILE}-restoring-", dir=folder))
    try:
        _write(trial / FILE, readable)
        with Store(trial, url="") as store:
            listed = {line.run_id for line in store.runs() if not line.damage}
            sound = {name: rows for name, rows in readable.items() if name in listed and _loads(store, name)}
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    return sound, unreadable | (set(readable) - set(sound))


def _loads(store: Store, name: str) -> bool:
    with suppress(StoreError):
        store.load(name)
        return True
    return False


def _names(db: sqlite3.Connection) -> list[str]:
    """Every name of a run in any table, in the order of the runs, as far as the tables can be read.

    Damage may leave megabytes where a name was: what mlcd cannot have given to a run names none.
    """
    found: dict[str, None] = {}
    queries = ["SELECT run_id FROM runs NOT INDEXED", *(f"SELECT run_id FROM {table}" for table in TABLES)]  # noqa: S608
    for query in queries:
        with suppress(*UNREADABLE):
            for (name,) in db.execute(query):
                if isinstance(name, str) and is_run_name(name):
                    found[name] = None
    return list(found)


def _rows(db: sqlite3.Connection, name: str) -> Rows:
    """All rows of a run. Raises DamagedRow where one is damaged or missing; sqlite3.Error."""
    rows: Rows = {}
    try:
        rows = {table: select(db, f"SELECT * FROM {table} WHERE run_id = ? ORDER BY rowid", name) for table in TABLES}  # noqa: S608
        _check(rows)
    except (DamagedRow, *UNREADABLE):  # the index may be damaged, and the table not
        rows = {
            table: select(db, f"SELECT * FROM {table} NOT INDEXED WHERE run_id = ? ORDER BY rowid", name)  # noqa: S608
            for table in TABLES
        }
        _check(rows)
    return rows


def _check(rows: Rows) -> None:
    started = sorted(int(str(row["number"])) for row in rows["steps_started"])
    ended = {int(str(row["number"])) for row in rows["steps_ended"]}
    if len(rows["runs"]) != 1 or not rows["statuses"] or started != list(range(1, len(started) + 1)):
        raise DamagedRow("a row is missing")
    if not ended <= set(started):
        raise DamagedRow("a row is missing")
    check_count(rows[COUNTS], _size(rows))


def _size(rows: Rows | None) -> int:
    return 0 if rows is None else sum(len(rows[table]) for table in FACTS)


# ---- writing


def _write(target: Path, runs: Mapping[str, Rows]) -> None:
    """A complete store with these runs."""
    partial = target.with_name(f"{target.name}.partial")
    try:
        remove(partial)
        private_file(partial)
        with closing(connect(partial)) as db:
            db.execute("BEGIN IMMEDIATE")
            create_tables(db)
            for table in FACTS:
                for rows in runs.values():
                    for row in rows[table]:
                        _copy(db, table, row)
            db.execute("COMMIT")
        sync(partial)
        partial.replace(target)
        sync(target.parent)
    finally:
        remove(partial)


def _copy(db: sqlite3.Connection, table: str, row: dict[str, object]) -> None:
    values = {name: value for name, value in row.items() if name != DIGEST}
    if table in _NUMBERED:
        insert_numbered(db, table, {name: value for name, value in values.items() if name != "id"})
    else:
        insert(db, table, [values])


def _put_in_place(path: Path) -> Path:
    """Make RESTORED the store; returns the name under which the damaged file is kept, with what was beside it."""
    kept = _free_name(path)
    for suffix in ("-wal", "-shm", ""):
        file = path.with_name(path.name + suffix)
        if os.path.lexists(file):
            if suffix or not stat.S_ISREG(file.lstat().st_mode):
                file.rename(kept.with_name(kept.name + suffix))
            else:
                _link_or_copy(file, kept)
    path.with_name(RESTORED).replace(path)
    sync(path.parent)
    close_to_others(path.parent)
    return kept


def _free_name(path: Path) -> Path:
    number = 1
    while os.path.lexists(found := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    return found


def _link_or_copy(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # no such links on this disk
        shutil.copy2(file, target)
        sync(target)


# ---- what else there is


@contextmanager
def _no_live_run(folder: Path) -> Iterator[None]:
    """Raises RunBusy while a process works on a run of this home."""
    for file in sorted((folder / "locks").glob("*.lock")):
        lock = FileLock(file, mode=0o600)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            name = file.name.removesuffix(".lock")
            raise RunBusy(f"run {name} is in use by another mlcd process; wait for it or end it") from error
        lock.release()
    yield


def _names_in(path: Path) -> set[str]:
    with suppress(*UNREADABLE), closing(connect(path)) as db:
        return set(_names(db))
    return set()


def _missing(folder: Path, known: set[str]) -> tuple[str, ...]:
    """Runs that are not in the store, by what is left of them in the home."""
    found = {file.name.removesuffix(".lock") for file in (folder / "locks").glob("*.lock")}
    found |= {file.name for file in (folder / "work").glob("*") if file.is_dir()}
    found |= {file.name.removesuffix(".json") for file in (folder / ENVS).glob("*.json")}
    return tuple(sorted(found - known))
