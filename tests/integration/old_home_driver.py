"""Opens a home in a process of its own, which is killed meanwhile: at a statement of SQLite, or from outside."""

import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

from mlcd.store.store import Store

_connect = sqlite3.connect


def open_home(home: str, ready: str, die_at: int) -> None:
    """Open the store in `home`; SIGKILL this process before its SQL statement number `die_at` (0: never).

    `ready` is made before the store is opened; afterwards it holds the statements and the seconds that opening took.
    """
    count = 0

    def traced(_: str) -> None:
        nonlocal count
        count += 1
        if count == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = _connect(*args, **kwargs)
        db.set_trace_callback(traced)
        return db

    sqlite3.connect = connect  # type: ignore[assignment]  # in this process only
    Path(ready).touch()
    began = time.monotonic()
    with Store(Path(home)):
        Path(ready).write_text(f"{count} {time.monotonic() - began}")
