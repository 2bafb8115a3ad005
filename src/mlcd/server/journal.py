"""The server's log: every kind of line once an interval, with a count, so that clients cannot fill a disk."""

import logging
import sys
import time
from dataclasses import dataclass
from typing import IO

INTERVAL_SECONDS = 60.0
MOST_KINDS = 200
"""More kinds than the server and its libraries have; the rest counts as one."""
MOST_CHARACTERS = 4000
"""Of one line, or one traceback."""


@dataclass(slots=True)
class _Kind:
    written: float
    unwritten: int = 0
    text: str = ""


class Journal(logging.Handler):
    """Writes the first record of a kind at once; further ones are counted, and written as one line an interval.

    Records are of one kind where their logger and their text before formatting are equal.
    """

    def __init__(self, stream: "IO[str] | None" = None, *, interval_seconds: float = INTERVAL_SECONDS) -> None:
        super().__init__()
        self._stream, self._interval_seconds = stream or sys.stderr, interval_seconds
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self.setFormatter(logging.Formatter("%(asctime)s mlcd.server: %(levelname)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """See the class."""
        key, now = (record.name, str(record.msg)[:200]), time.monotonic()
        if key not in self._kinds and len(self._kinds) >= MOST_KINDS:
            key = ("", "")
        kind = self._kinds.get(key)
        if kind is not None and now - kind.written < self._interval_seconds:
            kind.unwritten += 1
            return
        more = kind.unwritten if kind else 0
        text = self.format(record)[:MOST_CHARACTERS]
        self._kinds[key] = _Kind(now, 0, text.splitlines()[0])
        self._write(text + (f" ({more:,} more before)" if more else ""))

    def write_counts(self, *, ending: bool = False) -> None:
        """Write what was counted for an interval, or, when the server ends, for less."""
        now = time.monotonic()
        self.acquire()
        try:
            for kind in self._kinds.values():
                if kind.unwritten and (ending or now - kind.written >= self._interval_seconds):
                    self._write(f"{kind.text} ({kind.unwritten:,} more in {now - kind.written:.0f} s)")
                    kind.written, kind.unwritten = now, 0
        finally:
            self.release()

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except OSError:  # a full disk or a closed terminal must not end the server
            pass
