"""Whether the store's file is still where it was opened, and what becomes of it where it is not.

SQLite goes on writing to a file that was removed or moved: everything seems recorded, and is lost at the end.
"""

import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

from mlcd.errors import StoreError
from mlcd.home import private_file, private_folder

Place = tuple[int, int]
"""Device and number of a file."""


def place_of(path: Path) -> Place | None:
    """Of the file at `path`; None where there is none. Raises OSError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def was_removed(db: sqlite3.Connection, path: Path, opened: Place) -> bool:
    """Whether the file that `db` writes is gone from `path`: then it is there again, and must be opened again.

    Raises StoreError where another file is in its place, beside which what `db` holds is then; sqlite3.Error, OSError.
    """
    now = place_of(path)
    if now == opened:
        return False
    if now is None:
        _write(db, path)
        return True
    kept = path.with_name(f"{path.name}.kept-{secrets.token_hex(3)}")
    _write(db, kept)
    raise StoreError(
        f"{path}: was replaced while mlcd used it; the runs that were in it are in {kept}: move one of the two away"
    )


def _write(db: sqlite3.Connection, path: Path) -> None:
    """Write all that `db` holds to `path`, where there is no file."""
    private_folder(path.parent)
    for name in (f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)  # of the removed file: what they hold is in `db`
    private_file(path)
    with closing(sqlite3.connect(path)) as copy:
        db.backup(copy)
