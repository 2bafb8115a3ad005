"""The job's own report: JSON lines that mlcd reads while the job runs."""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO


class ProgressFile:
    """Appends lines to `path`; with None it says nothing.

    A line that cannot be written (a full disk) is left out and said once on standard error: the training goes on.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None
        self._failed = False
        self.last_written = 0.0
        """When the last line was written, by time.monotonic()."""

    def write(self, **fields: float | str | Mapping[str, float | None]) -> None:
        """One line with the time and these fields, at once on its way to the reader."""
        if self._path is None:
            return
        self.last_written = time.monotonic()
        line = json.dumps({"time": time.time(), **fields}) + "\n"
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("a", encoding="utf-8")
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            # A fresh file object next time: this one would write its half-kept line again and again.
            self._file = None
            if not self._failed:
                self._failed = True
                print(f"mlcd: cannot report progress to {self._path}: {error}", file=sys.stderr)  # noqa: T201
