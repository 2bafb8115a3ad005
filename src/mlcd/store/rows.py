"""Rows with a digest, by which a row that a disk, or a hand, has changed is told from one that mlcd wrote."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from hashlib import blake2b

TABLES = ("runs", "steps_started", "steps_ended", "calls", "verdicts", "findings", "statuses")
"""All tables, each after those that it refers to."""
DIGEST = "digest"
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""What `sqlite3` raises for a damaged database: neither its texts nor messages that quote them need be UTF-8."""


class DamagedRow(Exception):
    """A row that is not as mlcd wrote it; the text names the table and the row."""


def digest(row: Mapping[str, object]) -> str:
    """Of the names and values of all columns; NULL counts as absent, so that a later schema may add columns."""
    values = [(name, _plain(row[name])) for name in sorted(row) if name != DIGEST and row[name] is not None]
    return blake2b(json.dumps(values, ensure_ascii=True).encode(), digest_size=8).hexdigest()


def _plain(value: object) -> object:
    """The same for what is written and for what SQLite makes of it: true is 1, and 600 in a REAL column is 600.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    return int(value) if isinstance(value, bool) else value


def insert(db: sqlite3.Connection, table: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Add rows, each with its digest."""
    for row in rows:
        names = ", ".join((*row, DIGEST))
        marks = ", ".join("?" * (len(row) + 1))
        db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", (*row.values(), digest(row)))  # noqa: S608 - names


def insert_numbered(db: sqlite3.Connection, table: str, row: Mapping[str, object]) -> None:
    """Add a row to a table whose `id` is the next number."""
    (last,) = db.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()  # noqa: S608 - a name
    insert(db, table, [{"id": last + 1, **row}])


def count_rows(db: sqlite3.Connection, run_id: str) -> int:
    """How many rows a run has in all tables."""
    counts = ", ".join(f"(SELECT count(*) FROM {table} WHERE run_id = :run)" for table in TABLES)  # noqa: S608
    return sum(db.execute(f"SELECT {counts}", {"run": run_id}).fetchone())


def check_count(last_status: Mapping[str, object], count: int) -> None:
    """Raises DamagedRow where a run has fewer rows than its last status counted."""
    expected = last_status.get("row_count")
    if isinstance(expected, int) and count < expected:
        raise DamagedRow(f"{expected - count} of its {expected} rows are missing")


def select(db: sqlite3.Connection, query: str, *values: object) -> list[dict[str, object]]:
    """The whole rows (`SELECT *`) that a query finds. Raises DamagedRow, and what SQLite raises."""
    return [checked(dict(row)) for row in db.execute(query, values).fetchall()]


def checked(row: dict[str, object]) -> dict[str, object]:
    """The row, if its digest fits. Raises DamagedRow."""
    try:
        fits = row.get(DIGEST) == digest(row)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise DamagedRow(f"{_name(row)} is not as mlcd wrote it")
    return row


def seal(db: sqlite3.Connection) -> None:
    """Give every row that has none a digest: rows of an earlier schema."""
    for table in TABLES:
        for row in db.execute(f"SELECT rowid AS row_number, * FROM {table} WHERE {DIGEST} IS NULL").fetchall():  # noqa: S608 - a name
            found = dict(row)
            number = found.pop("row_number")
            db.execute(f"UPDATE {table} SET {DIGEST} = ? WHERE rowid = ?", (digest(found), number))  # noqa: S608 - a name


def _name(row: Mapping[str, object]) -> str:
    """What a row is, from its columns."""
    for column, name in (
        ("header", "what was recorded when it started"),
        ("verdict", "its verdict"),
        ("findings", "its findings"),
        ("status", "its status"),
    ):
        if column in row:
            return name
    number = row.get("number")
    if "shard" in row:
        return f"a function call of step {number}"
    return f"the outcome of step {number}" if "outcome" in row else f"the start of step {number}"
