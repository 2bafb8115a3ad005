"""Backups of the store, made when a run ends: complete and checked, the newest two, in $MLCD_HOME/backups.

They hold what the store holds: everything but the values of environment variables.
"""

import os
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from mlcd.home import private_file, private_folder
from mlcd.store.rows import TABLES, UNREADABLE, DamagedRow, select
from mlcd.untrusted import whole_number

FOLDER = "backups"
KEPT = 2
"""One is always complete while the next is made, and the older one is there if the newer is lost."""
SIMULATED_EVERY_SECONDS = 600.0
"""A simulated run costs nothing but its computing time, and a script may make thousands."""
LARGEST_BYTES = 2**30
"""A larger store is not copied."""


def back_up(path: Path, *, paid: bool) -> bool:
    """Copy the store, unless it is damaged, larger than LARGEST_BYTES or than half the free space, or was copied within
    SIMULATED_EVERY_SECONDS and the run was not `paid`. Returns whether it did; never fails.
    """  # noqa: D205 - one sentence
    with suppress(OSError, Timeout, *UNREADABLE):
        newest = newest_backup(path.parent)
        if not paid and newest is not None and 0 <= time.time() - newest.stat().st_mtime < SIMULATED_EVERY_SECONDS:
            return False
        size = path.stat().st_size
        if size > LARGEST_BYTES or 2 * size > shutil.disk_usage(path.parent).free:
            return False
        folder = private_folder(path.parent / FOLDER)
        with FileLock(folder / "lock", timeout=0, mode=0o600):
            return _make(path, folder, newest)
    return False


def _make(path: Path, folder: Path, newest: Path | None) -> bool:
    number = 1 + (int(newest.stem) if newest else 0)
    partial = folder / "partial"
    try:
        remove(partial)
        copy_database(path, partial)
        if damage_in(partial):
            return False  # the backups stay as they are: they were intact when they were made
        sync(partial)
        partial.replace(folder / f"{number:06}.sqlite3")
        sync(folder)
    finally:
        remove(partial)
    for old in backups(path.parent)[:-KEPT]:
        old.unlink(missing_ok=True)
    return True


def newest_backup(folder: Path) -> Path | None:
    """The newest backup in a home; None where there is none."""
    return next(reversed(backups(folder)), None)


def backups(folder: Path) -> list[Path]:
    """The backups in a home, the oldest first."""
    with suppress(OSError):
        found = (folder / FOLDER).glob("[0-9]*.sqlite3")
        return sorted(file for file in found if whole_number(file.stem) and file.is_file() and not file.is_symlink())
    return []


def damage_in(path: Path) -> str:
    """What is wrong with the database at `path`, wherever it is; "" where nothing is."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            (answer,) = db.execute("PRAGMA integrity_check(1)").fetchone()
            if answer != "ok":
                return str(answer)
            for table in TABLES:
                select(db, f"SELECT * FROM {table}")  # noqa: S608 - a name
    except (DamagedRow, *UNREADABLE) as error:
        return str(error)
    return ""


def copy_database(path: Path, target: Path) -> None:
    """Make a complete copy of a database that may be in use. Raises sqlite3.Error, OSError."""
    private_file(target)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, which can be read without writing beside it


def remove(path: Path) -> None:
    """Remove a copy that was not completed, with the files that SQLite puts beside it."""
    for name in (path.name, f"{path.name}-journal", f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Force a file, or a folder's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
