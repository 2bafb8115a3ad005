"""The job's progress file: JSON lines that mlcd reads while the job runs."""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO


class ProgressFile:
    """Appends lines to `path`; with None it writes nothing.

    A line that cannot be written (a full disk) is dropped, with one message on standard error; the training continues.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None
        self._failed = False
        self.last_written = 0.0
        """When the last line was written, in time.monotonic()."""

    def write(self, **fields: float | str | list[str] | Mapping[str, float | None] | Mapping[str, float]) -> None:
        """Write one line with the time and these fields, and flush it."""
        if self._path is None:
            return
        self.last_written = time.monotonic()
        line = json.dumps({"time": time.time(), **fields}) + "\n"
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("a", encoding="utf-8")
                if self._failed:
                    self._file.write("\n")  # the line that failed may be there in part: this one starts anew
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            # Open the file anew next time: this object would try to write its buffered line again and again.
            self._file = None
            if not self._failed:
                self._failed = True
                print(f"mlcd: cannot report progress to {self._path}: {error}", file=sys.stderr)  # noqa: T201
