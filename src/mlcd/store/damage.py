"""What is wrong with a store, in one message that says how to get it back."""

import errno
import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from mlcd.errors import StoreError
from mlcd.home import home
from mlcd.store.backups import newest_backup
from mlcd.untrusted import printable

_FULL_BYTES = 256 * 1024
"""With less free space, SQLite may fail in other ways than with "disk is full": its log's index needs room."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_WRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class DamagedStore(StoreError):
    """The file is not one that mlcd wrote, or no longer; `what` is wrong."""

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what = what


class NotWritable(StoreError):
    """The file or its folder cannot be written; reading may still work."""


def damaged(path: Path | None, what: str) -> DamagedStore:
    """The error about a damaged file. The caller raises it."""
    if path is None:
        return DamagedStore(f"the store in memory is damaged: {what}", what)
    return DamagedStore(f"{path} is damaged: {what}; {advice(path)}", what)


def damaged_run(path: Path | None, run_id: str, what: str) -> DamagedStore:
    """The error about one run; the others can still be used. The caller raises it."""
    if path is None:
        return DamagedStore(f"the store in memory: run {run_id} is damaged: {what}", what)
    return DamagedStore(f"{path}: run {run_id} is damaged: {what}; {advice(path)}", what)


def advice(path: Path) -> str:
    """How to get a damaged store back."""
    command = "mlcd runs --restore" if _is_home(path.parent) else f"MLCD_HOME={path.parent} mlcd runs --restore"
    backup = newest_backup(path.parent)
    if backup is None:
        return f"`{command}` keeps that file and saves the runs in it that can still be read; there is no backup"
    return (
        f"`{command}` keeps that file, saves the runs in it that can still be read and takes the others from the backup"
        f" of {date_of(backup)}"
    )


def date_of(path: Path) -> str:
    """When a file was written, for people."""
    return f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d %H:%M} UTC"


def explained(error: Exception, path: Path | None) -> StoreError:
    """What an error of SQLite, or of reading its texts, means, and what to do. The caller raises it."""
    where = str(path or "the store in memory")
    code = getattr(error, "sqlite_errorcode", None)
    code = None if code is None else code & 0xFF
    if code == sqlite3.SQLITE_FULL or (code not in (None, sqlite3.SQLITE_CORRUPT) and _is_full(path)):
        return full(where)
    if code in _NOT_WRITABLE:
        return NotWritable(f"{where}: is not writable: set MLCD_HOME to a writable folder")
    if code in _LOCKED:
        return StoreError(f"{where}: another mlcd process has locked it for too long: end that process and try again")
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(f"{where}: the disk cannot be read or written ({error}): see the system's log")
    if code == sqlite3.SQLITE_CONSTRAINT:
        return StoreError(f"{where}: {error}")
    what = "it holds bytes that are no text" if isinstance(error, UnicodeDecodeError) else str(error)
    return damaged(path, printable(what.partition(" with text ")[0]))  # that text may be anything


def explained_os(error: OSError, path: Path | None) -> StoreError:
    """What an error of the system means, and what to do. The caller raises it."""
    where = str(error.filename or path or "the store in memory")
    if error.errno in _FULL:
        return full(where)
    return NotWritable(f"{where}: {error.strerror or error}; set MLCD_HOME to a writable folder")


def full(where: str) -> StoreError:
    """The error about a full disk. The caller raises it."""
    return StoreError(
        f"{where}: the disk is full: free some space, then `mlcd resume` the run; everything paid so far is stored"
    )


def _is_full(path: Path | None) -> bool:
    try:
        found = os.statvfs(path.parent) if path else None
    except (OSError, AttributeError):
        return False
    return found is not None and found.f_bavail * found.f_frsize < _FULL_BYTES


def _is_home(folder: Path) -> bool:
    try:
        return folder.resolve() == home().resolve()
    except (OSError, StoreError):
        return False
