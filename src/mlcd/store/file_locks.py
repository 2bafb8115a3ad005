"""One process at a time works on a run: a file of the home for each, which the system unlocks when a process ends."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from mlcd.errors import BadInput, RunBusy
from mlcd.home import private_file, private_folder, write_private
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


def mark_here(home: Path, run_id: str) -> None:
    """Make that file: the run's other files will be in this home, too. Raises OSError."""
    private_folder(home / FOLDER)
    private_file(lock_file(home, run_id))


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
