"""What errors of a PostgreSQL server are called: one line with what to do, and no password."""

import psycopg
import pytest
from psycopg import errors

from mlcd.errors import StoreError
from mlcd.store.address import Address
from mlcd.store.damage import NotWritable
from mlcd.store.postgres_errors import Unreachable, explained, is_lost, not_connected

AT = Address(where="ana@db:5432/runs", url="postgresql://ana:hunter2@db/runs", secrets=("hunter2",))


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (errors.InsufficientPrivilege("denied"), NotWritable, "mlcd store init --spender ana"),
        (errors.ReadOnlySqlTransaction("no"), NotWritable, "is read-only (no)"),
        (errors.ObjectNotInPrerequisiteState("cannot do that during recovery"), NotWritable, "is read-only"),
        (errors.DiskFull("no room"), StoreError, "disk is full; everything paid so far is stored"),
        (errors.UniqueViolation("twice"), StoreError, "UNIQUE constraint failed: twice"),
        (errors.ForeignKeyViolation("no parent"), StoreError, "FOREIGN KEY constraint failed: no parent"),
        (errors.LockNotAvailable("locked"), StoreError, "did not answer in time (locked): try again"),
        (errors.QueryCanceled("slow"), StoreError, "did not answer in time (slow): try again"),
        (errors.NumericValueOutOfRange("1e99"), StoreError, "larger than can be stored (1e99)"),
        (errors.DataError("a zero byte"), StoreError, "characters other than can be stored"),
        (errors.InternalError("of ana:hunter2@db"), StoreError, "of ana:***@db"),
    ],
)
def test_statement_that_fails(error: psycopg.Error, kind: type[StoreError], text: str) -> None:
    said = explained(error, AT, "ana")
    assert type(said) is kind
    assert str(said).startswith("ana@db:5432/runs: ")
    assert text in str(said)
    assert "hunter2" not in str(said)


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        ('password authentication failed for user "ana"', StoreError, "set PGPASSWORD"),
        ('database "runs" does not exist', StoreError, "createdb"),
        ('role "ana" does not exist', StoreError, "CREATE ROLE"),
        ("the database system is starting up", Unreachable, "is starting or shutting down"),
        ("connection refused", Unreachable, "cannot be reached"),
    ],
)
def test_connection_that_fails(answer: str, kind: type[StoreError], text: str) -> None:
    said = not_connected(psycopg.OperationalError(answer), AT)
    assert type(said) is kind
    assert text in str(said)


def test_lost_connections_are_told_from_statements_that_fail() -> None:
    assert is_lost(errors.AdminShutdown("gone"), None)
    assert is_lost(errors.ConnectionFailure("gone"), None)
    assert not is_lost(errors.UniqueViolation("twice"), None)
