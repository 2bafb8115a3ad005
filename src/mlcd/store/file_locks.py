"""One process at a time works on a run: a file of the home for each, which the system unlocks when a process ends."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from filelock import FileLock, Timeout

from mlcd.errors import BadInput, RunBusy
from mlcd.home import private_folder, write_private
from mlcd.run.header import is_run_name
from mlcd.untrusted import Malformed, read_bytes, whole_number

FOLDER = "locks"
WAIT_SECONDS = 0.5
"""How long a run's lock is waited for."""


def lock_file(home: Path, run_id: str) -> Path:
    """The file that is locked while a process of this home works on a run. It stays when the process has ended.

    Raises BadInput for a name that no run has.
    """
    if not is_run_name(run_id):
        raise BadInput(f"{run_id[:100]!r} is no name of a run")
    return home / FOLDER / f"{run_id}.lock"


def mark_here(home: Path, row: Mapping[str, object]) -> None:
    """Note that a run of a team's store was started from this home: its files are here. Raises OSError, BadInput.

    row  as it is recorded in `runs`: what a colleague records under the same name later is another run
    """
    file = _mark_file(home, str(row["run_id"]))
    private_folder(file.parent)
    write_private(file, _mark(row))


def is_marked(home: Path, row: Mapping[str, object]) -> bool:
    """Whether the run with this row was started from this home."""
    try:
        return read_bytes(_mark_file(home, str(row["run_id"])), most_bytes=128).decode("ascii", "replace") == _mark(row)
    except (OSError, Malformed, BadInput):
        return False


def forget_mark(home: Path, run_id: str) -> None:
    """Delete the note about a run that is deleted. Raises OSError."""
    _mark_file(home, run_id).unlink(missing_ok=True)


def _mark_file(home: Path, run_id: str) -> Path:
    return lock_file(home, run_id).with_suffix(".own")


def _mark(row: Mapping[str, object]) -> str:
    kept = [str(row[name]) for name in ("run_id", "header", "problem", "spec")]
    return sha256(json.dumps(kept).encode()).hexdigest()


def busy(run_id: str) -> RunBusy:
    """The error about a run that another process works on. The caller raises it."""
    return RunBusy(f"run {run_id} is in use by another mlcd process; wait for it or end it")


class FileLocks:
    """Locks of one home.

    is_recorded  whether there is a run of this name; the file of one that was deleted meanwhile is removed
    """

    def __init__(self, home: Path, is_recorded: Callable[[str], bool]) -> None:
        self._home, self._is_recorded = home, is_recorded

    @contextmanager
    def held(self, run_id: str) -> Iterator[None]:
        """See Locks. Raises OSError where the home cannot be written.

        Waits a moment: `is_held` of another process holds the lock for an instant.
        """
        with self._locked(run_id, seconds=WAIT_SECONDS), self._owned(run_id):
            yield

    @contextmanager
    def _locked(self, run_id: str, *, seconds: float) -> Iterator[None]:
        private_folder(self._home / FOLDER)
        file = lock_file(self._home, run_id)
        lock = FileLock(file, mode=0o600)
        try:
            lock.acquire(timeout=seconds, poll_interval=0.01)
        except Timeout as error:
            raise busy(run_id) from error
        try:
            yield
        finally:
            if not self._is_recorded(run_id):
                with suppress(OSError):
                    file.unlink(missing_ok=True)
            lock.release()

    def is_held(self, run_id: str) -> bool:
        """See Locks; False in a home that nobody can write."""
        if not lock_file(self._home, run_id).exists():
            return False
        try:
            with self._locked(run_id, seconds=0):
                return False
        except RunBusy:
            return True
        except OSError:
            return False

    def owner(self, run_id: str) -> int | None:
        """See Locks. What a killed process left is not believed: it holds no lock."""
        if not self.is_held(run_id):
            return None
        with suppress(OSError, Malformed):
            return whole_number(read_bytes(self._owner_file(run_id), most_bytes=32).decode("ascii", "replace"))
        return None

    @contextmanager
    def _owned(self, run_id: str) -> Iterator[None]:
        with suppress(OSError):  # without it, the run can only be stopped from where it was started
            write_private(self._owner_file(run_id), str(os.getpid()))
        try:
            yield
        finally:
            with suppress(OSError):
                self._owner_file(run_id).unlink(missing_ok=True)

    def _owner_file(self, run_id: str) -> Path:
        return self._home / FOLDER / f"{run_id}.pid"
