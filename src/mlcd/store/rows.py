"""Rows with a digest, by which a row that a disk, or a hand, has changed is told from one that mlcd wrote."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b

from mlcd.store.database import Connection

FACTS = ("runs", "steps_started", "steps_ended", "calls", "verdicts", "findings", "statuses")
"""The tables with what is known of runs, each after those that it refers to."""
COUNTS = "row_counts"
"""How many rows each run has in those: by it, a run that lost some is told from one that was killed earlier."""
TABLES = (*FACTS, COUNTS)
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


def insert(db: Connection, table: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Add rows to a table of FACTS, each with its digest, and count them.

    Where the count is damaged, it stays so and the rows are added: what was paid for is recorded in any case.
    """
    added = Counter[str]()
    for row in rows:
        _insert(db, table, row)
        added[str(row["run_id"])] += 1
    for run_id, number in added.items():
        with suppress(DamagedRow):
            before = 0 if table == "runs" else _counted(db, run_id)
            set_count(db, run_id, before + number)


def _counted(db: Connection, run_id: str) -> int:
    """How many rows a run should have. Raises DamagedRow."""
    found = select(db, f"SELECT * FROM {COUNTS} WHERE run_id = ?", run_id)  # noqa: S608 - a name
    return _count_in(found)


def set_count(db: Connection, run_id: str, count: int) -> None:
    """Record how many rows a run has."""
    row = {"run_id": run_id, "row_count": count}
    change = "ON CONFLICT (run_id) DO UPDATE SET row_count = excluded.row_count, digest = excluded.digest"
    _insert(db, COUNTS, row, change)


def _insert(db: Connection, table: str, row: Mapping[str, object], on_conflict: str = "") -> None:
    names = ", ".join((*row, DIGEST))
    marks = ", ".join("?" * (len(row) + 1))
    query = f"INSERT INTO {table} ({names}) VALUES ({marks}) {on_conflict}"  # noqa: S608 - names
    db.execute(query, (*row.values(), digest(row)))


def insert_numbered(db: Connection, table: str, row: Mapping[str, object]) -> None:
    """Add a row to a table whose `id` is the next number."""
    found = db.execute(f"SELECT coalesce(max(id), 0) + 1 AS next FROM {table}").fetchone()  # noqa: S608 - a name
    insert(db, table, [{"id": found["next"], **row}])


_COUNTED = " + ".join(f"(SELECT count(*) FROM {table} WHERE run_id = ?)" for table in FACTS)  # noqa: S608


def count_rows(db: Connection, run_id: str) -> int:
    """How many rows a run has in the tables of FACTS."""
    return int(db.execute(f"SELECT {_COUNTED} AS found", [run_id] * len(FACTS)).fetchone()["found"])


def check_rows(db: Connection, run_id: str) -> None:
    """Raises DamagedRow where a run has other rows than were written. One query: another process may be writing."""
    query = f"SELECT *, {_COUNTED} AS found FROM {COUNTS} WHERE run_id = ?"  # noqa: S608 - names
    found = db.execute(query, [run_id] * (len(FACTS) + 1)).fetchone()
    row = {} if found is None else dict(found)
    check_count([] if found is None else [row], row.pop("found", 0))


def check_count(counts: Sequence[dict[str, object]], found: int) -> None:
    """Raises DamagedRow unless COUNTS has one row of a run and it says the number of rows that were `found`."""
    expected = _count_in(counts)
    if found < expected:
        raise DamagedRow(f"{expected - found} of its {expected} rows are missing")
    if found > expected:
        raise DamagedRow(f"it has {found} rows, and mlcd wrote {expected}")


def _count_in(counts: Sequence[dict[str, object]]) -> int:
    if len(counts) != 1:
        raise DamagedRow("the count of its rows is missing")
    return int(str(checked(counts[0])["row_count"]))


def select(db: Connection, query: str, *values: object) -> list[dict[str, object]]:
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
        ("row_count", "the count of its rows"),
    ):
        if column in row:
            return name
    number = row.get("number")
    if "shard" in row:
        return f"a function call of step {number}"
    return f"the outcome of step {number}" if "outcome" in row else f"the start of step {number}"
