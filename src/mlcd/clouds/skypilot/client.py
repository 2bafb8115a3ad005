"""mlcd's side of the SkyPilot worker: finds the Python that has SkyPilot, sends requests, and times out."""

import contextlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

from mlcd.errors import ProviderError
from mlcd.home import private_file, private_folder
from mlcd.untrusted import Fields, Malformed, expanded, last_line, parse_json, printable

PYTHON_SETTING = "MLCD_SKY_PYTHON"
MOST_ANSWER_CHARACTERS = 64 * 1024 * 1024
"""Of one answer of the worker, which is a line; the longest have the output of a launch."""
CLOSE_SECONDS = 120.0
"""How long a worker may take to take down unreleased clusters and stop the API server."""


class SkyError(Exception):
    """SkyPilot refused or failed. `types` are the names of the exception's classes, the most specific first."""

    def __init__(self, types: tuple[str, ...], message: str, reasons: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.types, self.message, self.reasons = types, message, reasons

    @property
    def text(self) -> str:
        """The message and the reason of each place tried, without terminal colours, on one line."""
        parts = [_without_colours(part) for part in (self.message, *self.reasons)]
        return "; ".join(dict.fromkeys(part for part in parts if part))


def sky_python() -> Path | None:
    """The Python that has SkyPilot: $MLCD_SKY_PYTHON, else mlcd's own, else the checkout's .venvs/skypilot.

    Reads files only. Raises ProviderError where MLCD_SKY_PYTHON names a Python without SkyPilot.
    """
    if given := os.environ.get(PYTHON_SETTING):
        try:
            python = expanded(given)
        except Malformed as error:
            raise ProviderError(f"{PYTHON_SETTING}: {error.problem} (got {printable(given)[:200]!r})") from error
        if not has_sky(python):
            raise ProviderError(f"{PYTHON_SETTING}={given} has no SkyPilot; run: {given} -m pip install skypilot")
        return python
    if importlib.util.find_spec("sky") is not None:
        return Path(sys.executable)
    in_checkout = Path(__file__).resolve().parents[4] / ".venvs" / "skypilot" / "bin" / "python"
    return in_checkout if has_sky(in_checkout) else None


def has_sky(python: Path) -> bool:
    """Whether the environment of that Python has the package `sky`; nothing is run."""
    return any(python.parent.parent.glob("lib/python3*/site-packages/sky/__init__.py"))


class Worker:
    """A running worker.py. Thread-safe. The worker takes down what it launched when this process dies."""

    def __init__(self, python: Path, log: Path, environment: Mapping[str, str] | None = None) -> None:
        private_folder(log.parent)
        private_file(log)
        self.log = log
        env = {"SKYPILOT_DISABLE_USAGE_COLLECTION": "1", **os.environ, **(environment or {})}
        with log.open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - this package's own file
                [str(python), str(Path(__file__).with_name("worker.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=env,
                text=True,
                start_new_session=True,  # Ctrl-C goes to mlcd only, which then releases in order
            )
        self._waiting: dict[int, Future[Any]] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the worker runs."""
        return self._process.poll() is None

    def call(self, op: str, *, seconds: float, **given: object) -> Any:
        """The answer to `op`. Raises SkyError for what SkyPilot raised, ProviderError on a timeout."""
        answer: Future[Any] = Future()
        pipe = self._process.stdin
        if pipe is None:
            raise ProviderError("SkyPilot's worker has no input")
        with self._lock:
            number = next(self._ids)
            self._waiting[number] = answer
            try:
                pipe.write(json.dumps({"id": number, "op": op, "given": given}) + "\n")
                pipe.flush()
            except (OSError, ValueError) as error:
                self._waiting.pop(number, None)
                raise self._ended_error() from error
        try:
            return answer.result(seconds)
        except FutureTimeout:
            raise ProviderError(f"SkyPilot did not answer {op!r} in {seconds:.0f} s; its log is {self.log}") from None

    def close(self) -> None:
        """End the worker: it takes down unreleased clusters, and stops the API server it started if that is idle."""
        with self._lock:
            if self._process.stdin is not None and not self._process.stdin.closed:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        pipe = self._process.stdout
        while pipe is not None and (line := pipe.readline(MOST_ANSWER_CHARACTERS)):
            try:
                number, value = _answered(line)
            except Malformed:  # not an answer: whoever waits for one has a timeout
                continue
            with self._lock:
                waiting = self._waiting.pop(number, None)
            if waiting is None:
                continue  # too late: the caller has timed out
            if isinstance(value, SkyError):
                waiting.set_exception(value)
            else:
                waiting.set_result(value)
        with self._lock:
            for waiting in self._waiting.values():
                waiting.set_exception(self._ended_error())
            self._waiting.clear()

    def _ended_error(self) -> ProviderError:
        return ProviderError(f"SkyPilot's worker has ended; its log {self.log} ends with: {last_line(self.log) or '-'}")


def _answered(line: str) -> tuple[int, Any]:
    """(number, value or SkyError) of an answer of the worker. Raises Malformed."""
    answer = Fields(parse_json(line, "SkyPilot's worker", non_finite_as_null=True), "SkyPilot's worker")
    number = answer.whole("id")
    if "error" not in answer:
        return number, answer.data.get("value")
    error = answer.fields("error")
    types, reasons = (tuple(map(str, error.items(name))) for name in ("types", "reasons"))
    return number, SkyError(types, str(error.data.get("message", "")), reasons)


def _without_colours(text: str) -> str:
    words: list[str] = []
    skipping = False
    for mark in text:  # terminal colours: ESC [ ... m
        if mark == "\x1b":
            skipping = True
        elif not skipping:
            words.append(mark)
        elif mark == "m":
            skipping = False
    return " ".join("".join(words).split())
