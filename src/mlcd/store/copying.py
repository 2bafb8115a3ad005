"""Copies runs between stores: a home's file and a team's server, in either direction.

A run is copied in one transaction, after all its rows were checked, and read back. What is there already stays: so a
copy that was interrupted is repeated and goes on where it was, and one that is repeated changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mlcd.errors import BadInput, RunBusy, StoreError
from mlcd.run.header import is_run_name
from mlcd.store.address import is_address
from mlcd.store.database import Connection, Database
from mlcd.store.file_locks import mark_here
from mlcd.store.records import Records, explained
from mlcd.store.rows import COUNTS, DIGEST, FACTS, DamagedRow, check_count, insert, insert_numbered, select
from mlcd.store.store import open_database

_NUMBERED = ("verdicts", "statuses")
_ORDER = {"steps_started": "number", "steps_ended": "number", "calls": "number, shard, attempt"} | dict.fromkeys(
    _NUMBERED, "id"
)
Rows = Mapping[str, Sequence[dict[str, object]]]
"""All rows of one run by table, without digests and ids, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What became of each run.

    copied     all rows were added
    continued  had been copied before and went on since: the new rows were added
    unchanged  were there, with the same rows
    busy       a process works on them now, so they were left out
    damaged    (name, what is wrong): their record cannot be read
    differing  are there with other rows: two runs of one name, or both went on
    """

    copied: tuple[str, ...] = ()
    continued: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    damaged: tuple[tuple[str, str], ...] = ()
    differing: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether everything of the source is in the target."""
        return not (self.busy or self.damaged or self.differing)


def copy_runs(source: str, target: str, *, told: Callable[[str, int, int], None] = lambda *_: None) -> Copied:
    """Copy the runs of one store to another. Raises BadInput, StoreError.

    source, target  each the address of a server, or a folder such as $MLCD_HOME
    told            called with each run's name, its number, and how many there are
    """
    if source == target:
        raise BadInput(f"FROM and TO are the same store: {'the same address' if is_address(source) else source}")
    done: dict[str, list[str]] = {}
    damaged: list[tuple[str, str]] = []
    with ExitStack() as leaving:
        # The files of runs stay where they are: locks of runs on a server are files beside them, or nowhere.
        nowhere = leaving.enter_context(TemporaryDirectory(prefix="mlcd-copy-"))
        home = Path(nowhere) if is_address(source) else _folder(source, "FROM")
        ours = _opened(source, "FROM", home, reading=True)
        leaving.callback(ours.close)
        theirs = _opened(target, "TO", home, reading=False)
        leaving.callback(theirs.close)
        with explained(theirs):
            theirs.check()
        with explained(ours):
            names = ours.read(lambda db: Records(ours, db).names())
        for number, name in enumerate(reversed(names), start=1):
            told(name, number, len(names))
            try:
                done.setdefault(_copied(ours, theirs, name), []).append(name)
                if theirs.shared and not ours.shared:
                    _mark(home, ours, name)
            except RunBusy:
                done.setdefault("busy", []).append(name)
            except _Damaged as error:
                damaged.append((name, str(error)))
    return Copied(damaged=tuple(damaged), **{what: tuple(found) for what, found in done.items()})


class _Damaged(Exception):
    """The source's record of a run cannot be read; the text says why."""


def _opened(place: str, what: str, home: Path, *, reading: bool) -> Database:
    if is_address(place):
        from mlcd.store.postgres import PostgresDatabase  # noqa: PLC0415 - an extra

        return PostgresDatabase(place, home, reading=reading, what=what)
    folder = _folder(place, what)
    if reading and not folder.is_dir():
        raise BadInput(f"{what}: there is no folder {place!r}; give a folder or postgresql://USER@HOST/DATABASE")
    return open_database(folder, reading=reading, url="")


def _folder(place: str, what: str) -> Path:
    try:
        return Path(place).expanduser()
    except RuntimeError as error:
        raise BadInput(f"{what}: there is no folder {place!r}: no such user") from error


def _copied(ours: Database, theirs: Database, name: str) -> str:
    """Copy one run; what became of it, as a field of Copied. Raises RunBusy, _Damaged, StoreError."""
    if not is_run_name(name):
        raise _Damaged("its name is none that mlcd gives to runs")
    if ours.locks is not None and ours.locks.is_held(name):
        raise RunBusy(f"run {name} is in use by another mlcd process")
    try:
        with explained(ours, name):
            rows = ours.read(lambda db: _rows(db, name, is_source=True))
    except StoreError as error:
        raise _Damaged(getattr(error, "what", str(error))) from error
    with explained(theirs, name), nullcontext() if theirs.locks is None else theirs.locks.held(name):
        there = theirs.read(lambda db: _rows(db, name, is_source=False))
        missing = {table: list(rows[table][len(there[table]) :]) for table in FACTS}
        if any(list(rows[table][: len(there[table])]) != list(there[table]) for table in FACTS):
            return "differing"
        if not any(missing.values()):
            return "unchanged"
        theirs.write(lambda db: _add(db, missing))
        if theirs.read(lambda db: _rows(db, name, is_source=True)) != rows:
            raise StoreError(f"{theirs.where}: run {name} was not copied as it is: copy it again")
    return "continued" if there["runs"] else "copied"


def _mark(home: Path, ours: Database, name: str) -> None:
    """The run's files stay in the home that it was copied from: there it can be continued. Raises StoreError."""
    with explained(ours, name):
        for row in ours.read(lambda db: select(db, "SELECT * FROM runs WHERE run_id = ?", name)):
            mark_here(home, row)


def _rows(db: Connection, name: str, *, is_source: bool) -> Rows:
    """All rows of a run, checked; empty in a target that does not have it. Raises DamagedRow."""
    found = {}
    for table in FACTS:
        order = f" ORDER BY {_ORDER[table]}" if table in _ORDER else ""
        found[table] = select(db, f"SELECT * FROM {table} WHERE run_id = ?{order}", name)  # noqa: S608 - names
    if is_source or found["runs"]:
        if len(found["runs"]) != 1 or not found["statuses"]:
            raise DamagedRow("a row is missing")
        counts = select(db, f"SELECT * FROM {COUNTS} WHERE run_id = ?", name)  # noqa: S608 - a name
        check_count(counts, sum(map(len, found.values())))
    dropped = {DIGEST, "id"}
    return {
        table: [{key: value for key, value in row.items() if key not in dropped and value is not None} for row in rows]
        for table, rows in found.items()
    }


def _add(db: Connection, missing: Rows) -> None:
    for table in FACTS:
        if table in _NUMBERED:
            for row in missing[table]:
                insert_numbered(db, table, row)
        else:
            insert(db, table, missing[table])
