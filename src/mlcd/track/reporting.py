"""The process that talks to a tracker, as the run sees it: it is told, never waited for until the end.

A tracker's client retries for minutes, prints, starts threads and processes, and may be installed elsewhere. So it runs
in a process of its own (`worker.py`), fed through a pipe by a thread. What goes wrong there becomes one warning.
"""

import contextlib
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mlcd.errors import BadInput, MissingExtra, nearest
from mlcd.events import Event, Observer, RunEnded, Warned
from mlcd.extras import install_line
from mlcd.track.messages import Message, artifacts, messages

TRACKERS: Mapping[str, str] = {"mlflow": "mlflow", "wandb": "wandb"}
"""Tracker -> the module that it needs, which is the extra's name too."""
FLUSH_SECONDS = 30.0
"""How long a run that has ended waits for its tracker to take what it was told, unless FLUSH says otherwise."""
FLUSH = "MLCD_TRACK_SECONDS"
"""The environment variable that replaces FLUSH_SECONDS."""
GRACE_SECONDS = 5.0
"""A tracker's process ends itself this long after mlcd would have: where mlcd was killed before."""
MOST_FLUSH_SECONDS = 86_400.0
PYTHON = "MLCD_TRACK_PYTHON"
"""The environment variable that names a Python with the trackers' packages, where mlcd's own does not have them."""


@contextmanager
def tracked(names: str | Sequence[str], tell: Observer, *, flush_seconds: float | None = None) -> Iterator[Observer]:
    """An observer that passes every event on to `tell` and to these trackers.

    A tracker that fails, hangs or dies changes nothing but that `tell` gets one `Warned`. Raises BadInput as
    `checked_trackers` does, before anything starts.
    """
    with ExitStack() as leaving:
        wait = _flush_seconds() if flush_seconds is None else flush_seconds
        workers = [leaving.enter_context(_Worker(name, tell, wait)) for name in checked_trackers(names)]

        def watch(event: Event) -> None:
            tell(event)
            for worker in workers:
                worker.take(event)

        yield watch if workers else tell


def _flush_seconds() -> float:
    """Of the environment, else FLUSH_SECONDS. Raises BadInput for what is no time."""
    text = os.environ.get(FLUSH) or str(FLUSH_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST_FLUSH_SECONDS:
        raise BadInput(f"{FLUSH}: must be a number of seconds, 0 to {MOST_FLUSH_SECONDS:,.0f} (got {text[:40]!r})")
    return seconds


def checked_trackers(names: object) -> tuple[str, ...]:
    """The trackers of a name or a list of names, each once. Raises BadInput, MissingExtra."""
    given = (names,) if isinstance(names, str) else names
    if not isinstance(given, list | tuple):
        raise BadInput(f"track: must be the name of a tracker, or a list of them (got {str(given)[:80]!r})")
    for name in given:
        _check(name)
    if given:
        _flush_seconds()
    return tuple(dict.fromkeys(given))


def _check(name: object) -> None:
    if not isinstance(name, str) or name not in TRACKERS:
        near = nearest(str(name), tuple(TRACKERS))
        hint = f"; did you mean {near!r}?" if near else ""
        raise BadInput(f"track: there is no tracker {str(name)[:80]!r}; allowed: {', '.join(TRACKERS)}{hint}")
    module = TRACKERS[name]
    if not os.environ.get(PYTHON) and importlib.util.find_spec(module) is None:
        raise MissingExtra(
            f"track: {module} is not installed; {install_line(name)}, or set {PYTHON} to a Python that has it"
        )


class _Worker:
    """One tracker's process. After a problem it takes nothing more."""

    def __init__(self, name: str, tell: Observer, flush_seconds: float) -> None:
        self.name, self.tell, self.flush_seconds = name, tell, flush_seconds
        self.problem = ""
        self.has_warned = False
        self.has_ended = False
        self._queue: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._folder = tempfile.TemporaryDirectory(prefix="mlcd-track-", ignore_cleanup_errors=True)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "_Worker":
        python = os.environ.get(PYTHON) or sys.executable
        script = Path(__file__).with_name("worker.py")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own script
                [python, str(script), self.name, str(self.flush_seconds + GRACE_SECONDS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,  # Ctrl-C is for the run; the worker ends when its pipe closes
            )
        except OSError as error:
            self._fail(f"{python} cannot be started: {error.strerror or error}")
            return self
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._feed, self._listen)]
        for thread in self._threads:
            thread.start()
        return self

    def take(self, event: Event) -> None:
        """Queue what the event says. Never waits; an event that cannot be told is a problem of the tracker."""
        if not self.problem:
            try:
                for message in messages(event):
                    files = self._files(event) if isinstance(event, RunEnded) else []
                    self._queue.put({**message, "files": files} if files else message)
                self.has_ended = self.has_ended or isinstance(event, RunEnded)
            except (OSError, ValueError) as error:
                self._fail(str(error))
        self._warn()

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is None:
            return
        self._queue.put(None)
        try:
            process.wait(self.flush_seconds)
        except subprocess.TimeoutExpired:
            self._fail(f"it did not take everything within {self.flush_seconds:g} s of the run's end")
        finally:
            if process.returncode is None:  # what it has started, too: it has a session of its own
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for thread in self._threads:
                thread.join(1.0)
        if process.returncode not in (0, -9) and not self.problem:
            self._fail(f"its process ended with {process.returncode}")
        self._warn()
        self._folder.cleanup()

    def _files(self, event: RunEnded) -> list[str]:
        found = []
        for name, text in artifacts(event.run).items():
            file = Path(self._folder.name) / name
            file.write_text(text, encoding="utf-8")
            found.append(str(file))
        return found

    def _feed(self) -> None:
        """Write what is queued into the worker's pipe; its own thread, because a worker that hangs does not read."""
        pipe = self._process.stdin if self._process else None
        if pipe is None:
            return
        with contextlib.suppress(OSError, ValueError):  # it is gone: what it said, or its exit code, tells why
            while (message := self._queue.get()) is not None:
                pipe.write(json.dumps(message) + "\n")
                pipe.flush()
        with contextlib.suppress(OSError, ValueError):
            pipe.close()

    def _listen(self) -> None:
        pipe = self._process.stdout if self._process else None
        for line in pipe or ():
            if line.startswith("problem: "):
                self._fail(line.removeprefix("problem: ").strip()[:500])

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem

    def _warn(self) -> None:
        if self.problem and not self.has_warned:
            self.has_warned = True
            self.tell(Warned(text=f"{self.name}: {self.problem}; this run is no longer tracked, and continues"))
