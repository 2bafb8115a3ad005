"""Opens the store's file: refuses what is not one before SQLite touches it, and reads homes that cannot be written."""

import errno
import os
import shutil
import sqlite3
import stat
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

from mlcd.errors import StoreError
from mlcd.home import close_to_others, private_file, private_folder
from mlcd.store import wal
from mlcd.store.backups import FOLDER as BACKUPS
from mlcd.store.damage import damaged

FILE = "mlcd.sqlite3"
RESTORED = f"{FILE}.restored"
"""A restored store that is complete but not in its place yet."""
BUSY_SECONDS = 30.0
_LONGEST_TEXT_BYTES = 2**28
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link that leads nowhere",
}


def connect(path: Path | None, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """A connection to the file, or to a store in memory, which waits so long for locks. Raises sqlite3.Error."""
    db = sqlite3.connect(path or ":memory:", timeout=busy_seconds, isolation_level=None)
    db.row_factory = sqlite3.Row
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_TEXT_BYTES)  # a damaged length is refused, not allocated
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    db.execute("PRAGMA secure_delete = ON")
    return db


def open_in(folder: Path, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """The store of a home, which is made if it is missing and closed to others. Raises StoreError, OSError."""
    path = folder / FILE
    check_files(path)
    private_folder(folder)
    close_to_others(folder)
    if not path.exists():
        private_file(path)  # SQLite gives the files beside it the same mode
    return connect(path, busy_seconds)


def open_copy(folder: Path, copy: Path) -> sqlite3.Connection:
    """A copy, in the empty folder `copy`, of the store of a home that cannot be written.

    SQLite cannot read such a store where it is unless it ignores the log, and the newest steps are there.
    """
    path = folder / FILE
    check_files(path)
    for name in (FILE, f"{FILE}-wal"):
        with suppress(FileNotFoundError):
            shutil.copyfile(folder / name, copy / name)
    return connect(copy / FILE)


def new_copy_folder() -> Path:
    """An empty folder for `open_copy`. Raises OSError."""
    return Path(tempfile.mkdtemp(prefix="mlcd-read-only-"))


def check_files(path: Path) -> None:
    """Raises StoreError where a file is not one that SQLite should open, or would silently replace; OSError."""
    if path.with_name(RESTORED).exists():
        raise StoreError(f"{path} is being restored, or that was interrupted: `mlcd runs --restore` completes it")
    log = path.with_name(f"{path.name}-wal")
    for file in (path, log, path.with_name(f"{path.name}-shm")):
        _check_kind(file, path)
    size = path.stat().st_size if path.exists() else None
    if not size and log.exists() and log.stat().st_size:
        raise damaged(path, f"{'it is missing' if size is None else 'it is empty'}, but its log {log.name} is not")
    if size == 0 and (named := _traces(path.parent)):
        raise damaged(path, f"it is empty, but there was a run {named}")
    if size and not is_database(path):
        raise damaged(path, "it is not a database")
    found = wal.damage(log)
    for _ in range(3):
        if found:  # unless another process was just writing
            time.sleep(0.05)
            found = wal.damage(log)
    if found:
        raise damaged(path, f"its log {log.name}: {found}")


def is_database(path: Path) -> bool:
    """Whether the file begins as a database. Raises PermissionError.

    SQLite reads it, without its log: to open and close the file here would release the locks that other connections of
    this process hold on it (POSIX), and another process would take the store for unused and remove its log.
    """
    if not os.access(path, os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            db.execute("PRAGMA schema_version").fetchone()
    except sqlite3.DatabaseError as error:
        return "not a database" not in str(error)
    return True


def _check_kind(file: Path, path: Path) -> None:
    try:
        mode = file.lstat().st_mode
        if stat.S_ISLNK(mode) and file.exists():
            mode = file.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise damaged(path, f"{'it' if file == path else file.name} should be a file and is {kind}")


def _traces(folder: Path) -> str:
    """The name of a run that was once in the store of this home, from what is beside it; "" where there is none."""
    for name, pattern in (("locks", "*.lock"), ("work", "*"), (BACKUPS, "[0-9]*.sqlite3")):
        for found in sorted((folder / name).glob(pattern)):
            return found.name.removesuffix(".lock")
    return ""
