"""What the rows of runs say: reads them inside one transaction, and names what is damaged."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar, overload

from mlcd import codec
from mlcd.errors import BadInput, StoreError, nearest
from mlcd.goal import Goal
from mlcd.run.authorisation import Choice
from mlcd.run.findings import Findings
from mlcd.run.header import Header, is_run_name
from mlcd.run.kind import Kind
from mlcd.run.step import Role
from mlcd.run.verdict import Verdict
from mlcd.store.damage import DamagedStore
from mlcd.store.database import Connection, Database
from mlcd.store.rows import COUNTS, DamagedRow, check_rows, select
from mlcd.store.summary import RunSummary, thinned
from mlcd.trial.epoch import Fleet
from mlcd.trial.outcome import Status
from mlcd.units import Usd
from mlcd.untrusted import Malformed, is_utf8

T = TypeVar("T")
_OF_VALUES: tuple[type[Exception], ...] = (OSError, DamagedRow, ValueError, TypeError, KeyError, RecursionError)


@dataclass(frozen=True, slots=True)
class RunRows:
    """All rows of one run but its function calls: of its steps' ends by number."""

    run: Mapping[str, object]
    status: Status
    started: Sequence[Mapping[str, Any]]
    ended: Mapping[Any, Mapping[str, Any]]
    verdict: Mapping[str, object] | None
    findings: Mapping[str, object] | None

    @property
    def run_id(self) -> str:
        """The run's whole name."""
        return str(self.run["run_id"])


@contextmanager
def explained(database: Database, run_id: str | None = None) -> Iterator[None]:
    """Turns errors of the database and the system, and damaged rows, into one message that says what to do.

    run_id  the run whose rows are read; None where none is known yet
    """
    try:
        yield
    except (OverflowError, UnicodeEncodeError) as error:
        what = "a number is larger" if isinstance(error, OverflowError) else "a text has characters other"
        raise StoreError(f"{database.where}: {what} than can be stored ({error})") from error
    except Malformed as error:
        raise StoreError(f"{error}; remove the file and give the values with --env") from error
    except database.errors + _OF_VALUES as error:
        found = database.explained(error, run_id)
        if found is None:
            raise
        raise found from error


@overload
def decoded(database: Database, run_id: str, what: str, text: object, as_type: type[T]) -> T: ...
@overload
def decoded(database: Database, run_id: str, what: str, text: object, as_type: Any) -> Any: ...
def decoded(database: Database, run_id: str, what: str, text: object, as_type: Any) -> Any:
    """A stored value. Raises StoreError that names the run and the field."""
    try:
        return codec.decode(str(text), as_type)
    except codec.DecodeError as error:
        raise StoreError(
            f"{database.where}: run {run_id}: {what}: {error}; this version of mlcd cannot read it: upgrade mlcd, or"
            " restore the file from a copy"
        ) from error


def header_in(database: Database, row: Mapping[str, object]) -> Header:
    """How a run was started, from its row in `runs`. Raises DamagedRow, StoreError."""
    run_id = str(row["run_id"])
    found: Header = decoded(database, run_id, "header", row["header"], Header)
    if found.run_id != run_id:  # its files are found by the one and by the other
        raise DamagedRow("what was recorded when it started is of another run")
    return found


@dataclass(frozen=True, slots=True)
class Records:
    """The rows of all runs as one transaction sees them. Raises DamagedRow, StoreError, and the database's errors."""

    database: Database
    db: Connection

    def run_row(self, run_id: str) -> dict[str, object]:
        """What was recorded when it started. Raises StoreError where a row of the run is missing in any table.

        run_id  its name, or a prefix that is unique. Raises BadInput with the nearest name if there is no such run
        """
        with explained(self.database, run_id):
            row = self.last("SELECT * FROM runs WHERE run_id = ?", run_id) if is_utf8(run_id) else None
            if row is not None:
                if not is_run_name(run_id):
                    raise DamagedRow("its name is none that mlcd gives to runs")
                check_rows(self.db, run_id)
                return row
        names = self.names()
        if run_id in names:
            with explained(self.database, run_id):
                raise DamagedRow("what was recorded when it started is missing, or not in the index")
        matches = [name for name in names if name.startswith(run_id)]
        if len(matches) == 1:
            return self.run_row(matches[0])
        if matches:
            more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
            shown = ", ".join(sorted(matches)[:5])
            raise BadInput(f"{run_id!r} matches {len(matches)} runs: {shown}{more}; give more of the name")
        near = nearest(run_id, names)
        hint = f"; did you mean {near!r}?" if near else "; `mlcd runs` lists them"
        if run_id.endswith((".yaml", ".yml")):
            hint = ": it is the name of a job file, which starts a new run; `mlcd runs` lists the runs"
        raise BadInput(f"there is no run {run_id!r}{hint}")

    def run_rows(self, run_id: str) -> RunRows:
        """All rows of a run. Raises as `run_row` does."""
        row = self.run_row(run_id)
        name = str(row["run_id"])
        with explained(self.database, name):
            status = self.status(name)
            started, ended = self.steps(name)
            verdict = self.verdict(name)
            findings = self.last("SELECT * FROM findings WHERE run_id = ?", name)
            if findings is not None and not status.is_final:
                raise DamagedRow("its last status is missing")
            return RunRows(row, status, started, ended, verdict, findings)

    def names(self) -> list[str]:
        """The names of all runs, the newest first, from the table itself; then those that it has lost."""
        found = self.db.execute("SELECT run_id FROM runs NOT INDEXED ORDER BY rowid DESC").fetchall()
        counted = self.db.execute(f"SELECT run_id FROM {COUNTS} NOT INDEXED ORDER BY rowid DESC").fetchall()  # noqa: S608
        return list(dict.fromkeys(str(row["run_id"]) for row in (*found, *counted)))

    def status(self, run_id: str) -> Status:
        """The run's current state."""
        row = self.last("SELECT * FROM statuses WHERE run_id = ? ORDER BY id DESC LIMIT 1", run_id)
        if row is None:
            raise DamagedRow("its status is missing")
        return Status(str(row["status"]))

    def is_open(self, run_id: str) -> bool:
        """Whether a run has not ended. Raises StoreError where it is damaged: another one is not what is meant."""
        with explained(self.database, run_id):
            return not self.status(run_id).is_final

    def last(self, query: str, run_id: str) -> dict[str, object] | None:
        """The first row that a query about a run finds."""
        return next(iter(select(self.db, query, run_id)), None)

    def verdict(self, run_id: str) -> dict[str, object] | None:
        """The row of the verdict that counts; None before there is one."""
        return self.last("SELECT * FROM verdicts WHERE run_id = ? ORDER BY id DESC LIMIT 1", run_id)

    def steps(self, run_id: str) -> tuple[list[dict[str, Any]], dict[Any, dict[str, Any]]]:
        """The rows of the steps' starts, in order, and of their ends, by number."""
        started = select(self.db, "SELECT * FROM steps_started WHERE run_id = ? ORDER BY number", run_id)
        ended = {row["number"]: row for row in select(self.db, "SELECT * FROM steps_ended WHERE run_id = ?", run_id)}
        numbers = [row["number"] for row in started]
        if numbers != list(range(1, len(numbers) + 1)) or not ended.keys() <= set(numbers):
            raise DamagedRow("the start of a step is missing")
        return started, ended

    def summary_or_damage(self, run_id: str) -> RunSummary:
        """The line of a run; of a damaged one, what is wrong with it."""
        try:
            with explained(self.database, run_id):
                return self._summary(run_id)
        except StoreError as error:
            what = error.what if isinstance(error, DamagedStore) else str(error)
            return RunSummary(
                run_id=run_id, created="", cloud="", strategy="", status=None, trials=0, spent=Usd(0), damage=what
            )

    def _summary(self, run_id: str) -> RunSummary:
        row = self.run_row(run_id)
        header = header_in(self.database, row)
        goal = self._goal(run_id, str(row["problem"]))
        last = self.verdict(run_id)
        verdict = None if last is None else decoded(self.database, run_id, "verdict", last["verdict"], Verdict)
        status = self.status(run_id)
        is_unmet = header.kind is Kind.SERVE and status is Status.NOTHING_FITS
        started, ended = self.steps(run_id)
        counted = (Role.TRIAL.value, Role.EPOCH.value)
        return RunSummary(
            run_id=run_id,
            created=header.created,
            cloud=header.cloud,
            strategy=header.strategy,
            status=status,
            trials=sum(row["role"] in counted and row["number"] in ended for row in started),
            spent=Usd(sum(row["usd_micros"] for row in ended.values())),
            budget=goal.budget,
            spending=thinned([Usd(total) for total in accumulate(ended[key]["usd_micros"] for key in sorted(ended))]),
            kind=header.kind,
            goal=goal.serving_text if header.kind is Kind.SERVE else str(goal),
            choice="" if is_unmet else self._choice(run_id, header.kind, verdict),
            fleets=self._fleets(run_id, [row for row in started if row["number"] in ended]),
            made_by=header.made_by,
        )

    def _choice(self, run_id: str, kind: Kind, verdict: Verdict | None) -> str:
        """What was chosen in the end: a verification may have led from the verdict's choice to another one."""
        row = self.last("SELECT * FROM findings WHERE run_id = ?", run_id) if kind is Kind.SERVE else None
        found = None if row is None else decoded(self.database, run_id, "findings", row["findings"], Findings).serve
        if found is not None:
            return "" if found.choice is None else str(found.choice.config)
        return "" if verdict is None or verdict.choice is None else str(verdict.choice.config)

    def _fleets(self, run_id: str, ended: Sequence[Mapping[str, Any]]) -> str:
        """`11 of 13 epochs on 64 x 3,008 MB`: the functions that most epochs ran on; "" without epochs."""
        texts = Counter(row["choice"] for row in ended if row["role"] == Role.EPOCH.value)
        used: Counter[str] = Counter()
        for text, count in texts.items():
            fleet = decoded(self.database, run_id, "choice of an epoch", text, Choice)
            used[fleet.plain if isinstance(fleet, Fleet) else str(fleet)] += count
        return "".join(f"{count} of {used.total()} epochs on {name}" for name, count in used.most_common(1))

    def _goal(self, run_id: str, problem: str) -> Goal:
        """The goal alone: a problem has thousands of configurations, and a list of runs needs none of them."""
        (kept,) = (value for value in json.loads(problem).values())  # a union: {"problem": {...}}
        return decoded(self.database, run_id, "problem.goal", codec.dump(kept["goal"]), Goal)
