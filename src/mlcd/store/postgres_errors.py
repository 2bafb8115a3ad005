"""What errors of a PostgreSQL server mean, in one line that says what to do and holds no password."""

import re

import psycopg

from mlcd.errors import StoreError
from mlcd.store.address import Address
from mlcd.store.damage import DamagedStore, NotWritable
from mlcd.untrusted import printable

_LOST_STATES = ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04")
"""The server shuts down, crashed, is not up yet, or ended the session."""
_REFUSED = re.compile(r"password authentication failed|no password supplied|authentication failed|pg_hba\.conf", re.I)
_NO_DATABASE = re.compile(r'database "[^"]*" does not exist', re.I)
_NO_ROLE = re.compile(r'role "[^"]*" does not exist', re.I)
_STARTING = re.compile(r"starting up|shutting down|recovery", re.I)


class Unreachable(StoreError):
    """The server does not answer, or not now: trying again may help."""


def is_lost(error: psycopg.Error, connection: psycopg.Connection[object] | None) -> bool:
    """Whether the connection is of no use any more, so that the work may be done again on another."""
    if connection is not None and (connection.closed or connection.broken):
        return True
    state = error.sqlstate or ""
    return state in _LOST_STATES or state.startswith("08")


def not_connected(error: psycopg.Error, address: Address) -> StoreError:
    """Why a connection could not be made. The caller raises it."""
    text = _one_line(error, address)
    if _REFUSED.search(text):
        return StoreError(
            f"{address.where}: the server refuses the login ({text}); set PGPASSWORD, or add a line to ~/.pgpass"
        )
    if _NO_DATABASE.search(text):
        return StoreError(f"{address.where}: {text}; create it with: createdb")
    if _NO_ROLE.search(text):
        return StoreError(f"{address.where}: {text}; its owner can add it: CREATE ROLE ... LOGIN")
    state = "is starting or shutting down" if _STARTING.search(text) else "cannot be reached"
    return Unreachable(
        f"{address.where}: {state} ({text}); try again when it is up. `env -u MLCD_STORE mlcd ...` uses this machine's"
        " own store"
    )


def gone(address: Address, error: Exception, seconds: float) -> Unreachable:
    """The connection was lost, and could not be made again for so long. The caller raises it."""
    return Unreachable(
        f"{address.where}: the connection was lost and not restored within {seconds:.0f} s"
        f" ({_one_line(error, address)}); nothing new was started: `mlcd resume` continues the run when it is up"
    )


def explained(error: psycopg.Error, address: Address, role: str) -> StoreError:
    """What an error of a statement means, and what to do. The caller raises it."""
    text = _one_line(error, address)
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return NotWritable(
            f"{address.where}: role {role} may not do that ({text}); the store's owner can allow it:"
            f" mlcd store init --spender {role}"
        )
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction) or "during recovery" in text:
        return NotWritable(f"{address.where}: the server, or this role, is read-only ({text})")
    if isinstance(error, psycopg.errors.DiskFull):
        return StoreError(f"{address.where}: the server's disk is full; everything paid so far is stored")
    if isinstance(error, psycopg.errors.UniqueViolation):
        return StoreError(f"{address.where}: UNIQUE constraint failed: {text}")
    if isinstance(error, psycopg.errors.ForeignKeyViolation):
        return StoreError(f"{address.where}: FOREIGN KEY constraint failed: {text}")
    if isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.QueryCanceled):
        return StoreError(f"{address.where}: the server did not answer in time ({text}): try again")
    if isinstance(error, psycopg.errors.NumericValueOutOfRange):
        return StoreError(f"{address.where}: a number is larger than can be stored ({text})")
    if isinstance(error, psycopg.DataError):
        return StoreError(f"{address.where}: a text has characters other than can be stored ({text})")
    return StoreError(f"{address.where}: {text}")


def damaged_run(address: Address, run_id: str, what: str) -> DamagedStore:
    """The error about one run; the others can still be used. The caller raises it."""
    return DamagedStore(
        f"{address.where}: run {run_id} is damaged: {what}; restore it from a backup of the server, or from a copy with"
        " `mlcd store copy`",
        what,
    )


def _one_line(error: Exception, address: Address) -> str:
    """The last cause in the driver's text: it may name several addresses, one a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "failed: " in line]
    text = causes[-1].rpartition("failed: ")[2] if causes else " ".join(lines[:2])
    return printable(address.without_secrets(text.removeprefix("FATAL:").strip()))[:300]
