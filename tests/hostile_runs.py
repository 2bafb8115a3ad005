"""Runs whose every text is hostile: what jobs, catalogs, clouds and nodes gave, wherever the store accepts it."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from mlcd.errors import MlcdError
from mlcd.findings import shown
from mlcd.run.run import AnyRun
from mlcd.store.database import Connection
from mlcd.store.rows import FACTS, insert, select
from mlcd.store.store import Store
from mlcd.trial.outcome import Status

T = TypeVar("T")
Rows = Mapping[str, list[dict[str, object]]]
UNTOUCHED = ("run_id", "digest")
OWN = frozenset({"", "instance", "nodes", "batch", "threads", "replicas", "precision", *map(str, Status)})
"""Words of mlcd's own, which nobody else gives."""


def recorded(run: AnyRun) -> Rows:
    """The rows of a hand-built run, as the store writes them."""
    with Store(None) as store:
        store.add(replace(run, steps=(), verdict=None, findings=None, status=Status.RUNNING), spec={})
        for step in run.steps:
            store.start(run.run_id, [replace(step, outcome=None)])
            store.end(run.run_id, step)
        if run.verdict is not None:
            store.conclude(run.run_id, run.verdict)
        if run.status.is_final:
            store.finish(run.run_id, run.status, shown(run).findings)
        return rows_of(store, run.run_id)


def rows_of(store: Store, run_id: str) -> Rows:
    """All rows of a run, without digests."""
    database: Any = store._database
    found = {table: select(database.db, f"SELECT * FROM {table} WHERE run_id = ?", run_id) for table in FACTS}
    return {
        table: [{key: value for key, value in row.items() if key != "digest"} for row in rows]
        for table, rows in found.items()
    }


def put(store: Store, rows: Rows) -> None:
    """Insert a run's rows."""
    database: Any = store._database
    for table, some in rows.items():
        database.write(partial(_insert, table, some))


def _insert(table: str, rows: list[dict[str, object]], db: Connection) -> None:
    for row in rows:
        if "id" in row:
            last = db.execute(f"SELECT coalesce(max(id), 0) AS last FROM {table}").fetchone()
            row = {**row, "id": last["last"] + 1}  # noqa: PLW2901
        insert(db, table, [row])


def hostile(rows: Rows, evil: str) -> tuple[Rows, frozenset[str]]:
    """The rows with `evil` added to every text that may have it; and those texts.

    May: the store reads the run then. Kinds and states are not free, for instance.
    """
    known = sorted({text for some in rows.values() for row in some for text in _texts(row)} - OWN)
    kept = most(known, lambda some: _is_read(changed(rows, some, evil)))
    return changed(rows, kept, evil), frozenset(kept)


def _knobs(rows: Rows) -> frozenset[str]:
    """The names of what a job may choose: the only keys that a job can name."""
    problem = json.loads(str(rows["runs"][0]["problem"]))
    return frozenset(knob["name"] for knob in (problem.get("space") or {}).get("knobs", ()))


def most(texts: list[T], works: Callable[[Collection[T]], bool]) -> list[T]:
    """As many of the texts as work together: halves of what fails are tried beside what is kept."""
    kept: list[T] = []
    waiting = [texts]
    while waiting:
        some = waiting.pop()
        if not some:
            continue
        if works([*kept, *some]):
            kept += some
        elif len(some) > 1:
            middle = len(some) // 2
            waiting += [some[middle:], some[:middle]]
    return kept


def _is_read(rows: Rows) -> bool:
    try:
        with Store(None) as store:
            put(store, rows)
            run_id = str(rows["runs"][0]["run_id"])
            shown(store.load(run_id))
    except (MlcdError, ValueError, KeyError, TypeError, AssertionError):
        return False
    return True


def changed(rows: Rows, texts: Collection[str], evil: str) -> Rows:
    """The rows with `evil` behind each of these texts."""
    among = frozenset(texts)
    keys = _knobs(rows) & among
    return {table: [_row(row, among, keys, evil) for row in some] for table, some in rows.items()}


def _row(row: Mapping[str, object], texts: frozenset[str], keys: frozenset[str], evil: str) -> dict[str, object]:
    made: dict[str, object] = {}
    for key, value in row.items():
        if key in UNTOUCHED or not isinstance(value, str):
            made[key] = value
        elif value.startswith(("{", "[")):
            made[key] = json.dumps(_value(json.loads(value), texts, keys, evil))
        else:
            made[key] = _text(value, texts, evil)
    return made


def _value(value: Any, texts: frozenset[str], keys: frozenset[str], evil: str) -> Any:
    if isinstance(value, dict):
        return {_text(key, keys, evil): _value(each, texts, keys, evil) for key, each in value.items()}
    if isinstance(value, list):
        return [_value(each, texts, keys, evil) for each in value]
    return _text(value, texts, evil) if isinstance(value, str) else value


def _text(text: str, texts: frozenset[str], evil: str) -> str:
    return text + evil if text in texts else text


def _texts(value: Any) -> set[str]:
    """All texts in a row."""
    if isinstance(value, dict):
        return set[str]().union(*(_texts(each) for key, each in value.items() if key not in UNTOUCHED))
    if isinstance(value, list):
        return set[str]().union(*map(_texts, value))
    if not isinstance(value, str):
        return set()
    return _texts(json.loads(value)) if value.startswith(("{", "[")) else {value}
