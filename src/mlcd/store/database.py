"""The seam between what the store says (rows, digests, counts) and the database that keeps it.

sqlite.py    one file under $MLCD_HOME: the default
postgres.py  a PostgreSQL server that a team shares
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from mlcd.errors import StoreError

T = TypeVar("T")


class Result(Protocol):
    """The rows that a query found; each is read by the names of its columns."""

    def fetchone(self) -> Any:
        """The next row; None where there is no more."""
        ...

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        ...


class Connection(Protocol):
    """One transaction on the database, for as long as the work that it is given to."""

    def execute(self, query: str, values: Sequence[object] = ..., /) -> Result:
        """Run one statement in SQLite's dialect, with `?` for each value. Raises the database's own errors."""
        ...


class Locks(Protocol):
    """One process at a time works on a run."""

    def held(self, run_id: str) -> AbstractContextManager[None]:
        """Hold a run. Raises RunBusy if another process, or another store, does. A process that dies holds nothing."""
        ...

    def is_held(self, run_id: str) -> bool:
        """Whether somebody holds the run now."""
        ...

    def owner(self, run_id: str) -> int | None:
        """The process of this machine that holds the run now; None where none does, or it is not known."""
        ...


class Database(Protocol):
    """Keeps rows. Methods raise the database's own errors, which `explained` turns into StoreErrors; or StoreErrors.

    where   what it is, for messages; never a password
    shared  whether people on other machines use it too
    errors  what its driver raises
    locks   None in memory, which no other process sees
    """

    where: str
    errors: tuple[type[Exception], ...]
    shared: bool
    locks: Locks | None

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in one transaction: all of it is durable when this returns, or nothing of it was written.

        `work` may be done again after a lost connection, so that it must not rely on being done once.
        """
        ...

    def read(self, work: Callable[[Connection], T]) -> T:
        """Do `work`, which only reads; all its queries see the same state. It may be done again, too."""
        ...

    def changes(self) -> int:
        """A number that is another one after somebody has written. Cheap to ask."""
        ...

    def is_as_opened(self) -> bool:
        """Whether this connection still shows what others see. Cheap to ask."""
        ...

    def check(self) -> None:
        """Raises StoreError where it is damaged or cannot be written: before money is spent on what it records."""
        ...

    def back_up(self, *, paid: bool) -> None:
        """Keep a copy, where this database keeps any and it is time for one. Never fails."""
        ...

    def explained(self, error: Exception, run_id: str | None) -> StoreError | None:
        """What an error means, and what to do; None for one that is not the database's, or that it handles itself.

        run_id  the run whose rows were read: whatever is wrong with their values is damage; None where none is known
        """
        ...

    def close(self) -> None:
        """End the connection, and with it all locks."""
        ...
