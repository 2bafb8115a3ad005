"""The record of all runs: one append-only SQLite file in WAL mode under $MLCD_HOME, one transaction per change."""

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast, overload

from filelock import FileLock, Timeout

from mlcd import codec
from mlcd.errors import BadInput, RunBusy, StoreError, nearest
from mlcd.functions import FunctionProblem
from mlcd.problem import Problem
from mlcd.run.attempt import Attempt
from mlcd.run.authorisation import Authorisation, Choice
from mlcd.run.findings import Findings
from mlcd.run.header import Header
from mlcd.run.kind import Kind
from mlcd.run.moment import Moment
from mlcd.run.run import AnyRun, Run
from mlcd.run.step import Outcome, Role, Step
from mlcd.run.verdict import Verdict
from mlcd.store.migration import SCHEMAS, add_columns, lacking_columns, migrate
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import Epoch
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Failure, Measurement
from mlcd.units import Usd

SCHEMA = 6
"""Schema 1 was used before the first release; 2 to 5 by version 0.1, which had tables for each kind of step."""
FILE = "mlcd.sqlite3"
_CALL_FIELDS = tuple(field.name for field in fields(FunctionCall))
_INSERT_CALL = f"INSERT INTO calls (run_id, number, {', '.join(_CALL_FIELDS)}) VALUES (?, ?{', ?' * len(_CALL_FIELDS)})"  # noqa: S608 - only names and marks
_STATUS = "(SELECT status FROM statuses s WHERE s.run_id = r.run_id ORDER BY id DESC LIMIT 1) AS status"

T = TypeVar("T")
R = TypeVar("R", bound=Run[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One line of `mlcd runs`. `trials` counts the trials and epochs that have ended; `spent` covers all steps."""

    run_id: str
    created: str
    cloud: str
    strategy: str
    status: Status
    trials: int
    spent: Usd
    kind: Kind = Kind.TRAIN


def home() -> Path:
    """$MLCD_HOME, by default ~/.mlcd."""
    return Path(os.environ.get("MLCD_HOME") or Path.home() / ".mlcd").expanduser()


class Store:
    """The runs of one home. Errors are StoreErrors that say what to do. Several processes may use a home at once."""

    def __init__(self, folder: Path | None) -> None:
        """Open or create the store in `folder`; None keeps it in memory (benchmarks)."""
        self.folder = folder
        self.path = folder / FILE if folder else None
        with self._explained():
            if folder:
                folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path or ":memory:", timeout=30, isolation_level=None)
            self._db.row_factory = sqlite3.Row
            self._prepare()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()

    # ---- writing: each call is one transaction

    def add(self, run: AnyRun, *, spec: dict[str, Any]) -> None:
        """Add a new run with the job as the user wrote it. Raises ValueError if the run already has steps."""
        if run.steps or run.verdict is not None or run.findings is not None:
            raise ValueError(
                "a new run has no steps, verdict or findings; write those with start, end, conclude, finish"
            )
        values = (
            run.run_id,
            codec.encode(run.header),
            codec.encode(run.problem, Problem | FunctionProblem),
            codec.dump(spec),
        )
        with self._transaction() as db:
            db.execute("INSERT INTO runs (run_id, header, problem, spec) VALUES (?, ?, ?, ?)", values)
            _add_status(db, run.run_id, run.status)

    def start(self, run_id: str, steps: Sequence[Step]) -> None:
        """Record that these steps start together, all or none; call it before anything is spent on them."""
        values = [_started(run_id, step) for step in steps]
        with self._transaction() as db:
            db.executemany("INSERT INTO steps_started VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def end(self, run_id: str, step: Step, calls: Sequence[FunctionCall] = ()) -> None:
        """Record the outcome of a step, with the calls of an epoch; the step is never run or paid again.

        Raises ValueError for a step without an outcome.
        """
        if step.outcome is None:
            raise ValueError(f"step {step.number} has no outcome yet")
        outcome = step.outcome
        values = (
            run_id,
            step.number,
            _short_kind(outcome),
            outcome.seconds,
            outcome.usd.micros,
            codec.encode(outcome, Outcome),
            step.ended_seconds,
            _encoded(step.ended_moment),
        )
        with self._transaction() as db:
            db.execute("INSERT INTO steps_ended VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
            if calls:
                db.executemany(_INSERT_CALL, [(run_id, step.number, *_call_values(call)) for call in calls])

    def conclude(self, run_id: str, verdict: Verdict) -> None:
        """Record the verdict when the search, or a serverless training, ends. A later verdict replaces it."""
        with self._transaction() as db:
            db.execute("INSERT INTO verdicts (run_id, verdict) VALUES (?, ?)", (run_id, codec.encode(verdict)))

    def set_status(self, run_id: str, status: Status) -> None:
        """Record a change of state."""
        with self._transaction() as db:
            _add_status(db, run_id, status)

    def finish(self, run_id: str, status: Status, findings: Findings | None) -> None:
        """Record the last state, with what reports show of the run. Findings are written once; a second time fails."""
        with self._transaction() as db:
            if findings is not None:
                db.execute("INSERT INTO findings VALUES (?, ?)", (run_id, codec.encode(findings)))
            _add_status(db, run_id, status)

    # ---- reading: a run is found by its name, or by a prefix that is unique

    def load(self, run_id: str) -> AnyRun:
        """Everything known of a run. Raises BadInput with the nearest name if there is no such run."""
        with self._snapshot():
            run = self._run_row(run_id)
            name: str = run["run_id"]
            status = self._status(name)
            steps = self._db.execute(
                "SELECT s.*, e.outcome, e.ended_seconds, e.ended_moment"
                " FROM steps_started s LEFT JOIN steps_ended e USING (run_id, number) WHERE run_id = ? ORDER BY number",
                (name,),
            ).fetchall()
            verdict = self._one("SELECT verdict FROM verdicts WHERE run_id = ? ORDER BY id DESC LIMIT 1", name)
            findings = self._one("SELECT findings FROM findings WHERE run_id = ?", name)
        loaded = Run(
            header=self._decoded(name, "header", run["header"], Header),
            problem=cast(
                Problem | FunctionProblem,
                self._decoded(name, "problem", run["problem"], Problem | FunctionProblem),
            ),
            status=status,
            steps=tuple(self._step(name, row) for row in steps),
            verdict=None if verdict is None else self._decoded(name, "verdict", verdict["verdict"], Verdict),
            findings=None if findings is None else self._decoded(name, "findings", findings["findings"], Findings),
            outputs=self._outputs(name),
        )
        return loaded.with_reported_work()

    def reread(self, run: R) -> R:
        """The same run as it is stored now."""
        return cast(R, self.load(run.run_id))

    def spec(self, run_id: str) -> dict[str, Any]:
        """The job as the user wrote it, for resuming."""
        with self._explained():
            data: dict[str, Any] = json.loads(self._run_row(run_id)["spec"])
        return data

    def calls(self, run_id: str) -> tuple[FunctionCall, ...]:
        """Every call of a function with its price, in order."""
        with self._explained():
            name = self._run_row(run_id)["run_id"]
            found = self._db.execute(
                f"SELECT {', '.join(_CALL_FIELDS)} FROM calls WHERE run_id = ? ORDER BY number, shard, attempt",  # noqa: S608 - only names
                (name,),
            ).fetchall()
        return tuple(codec.from_json(dict(row), FunctionCall) for row in found)

    def kind(self, run_id: str) -> Kind:
        """The kind of job."""
        with self._explained():
            row = self._run_row(run_id)
        return self._decoded(row["run_id"], "header", row["header"], Header).kind

    def status(self, run_id: str) -> Status:
        """The run's current state."""
        with self._explained():
            return self._status(self._run_row(run_id)["run_id"])

    def runs(self) -> tuple[RunSummary, ...]:
        """All runs, the newest first."""
        with self._explained():
            found = self._db.execute(
                f"SELECT r.run_id, r.header, {_STATUS},"  # noqa: S608 - a constant
                " (SELECT count(*) FROM steps_started s JOIN steps_ended e USING (run_id, number)"
                "  WHERE s.run_id = r.run_id AND s.role IN (?, ?)) AS trials,"
                " (SELECT coalesce(sum(usd_micros), 0) FROM steps_ended e WHERE e.run_id = r.run_id) AS spent"
                " FROM runs r ORDER BY r.rowid DESC",
                (Role.TRIAL.value, Role.EPOCH.value),
            ).fetchall()
        return tuple(sorted(map(self._summary, found), key=lambda line: line.created, reverse=True))

    # ---- one process at a time

    @contextmanager
    def lock(self, run_id: str) -> Iterator[None]:
        """Lock a run for this process. Raises RunBusy if it is locked. The system releases the lock at process exit."""
        if self.folder is None:
            yield
            return
        with self._explained():
            (self.folder / "locks").mkdir(exist_ok=True)
            lock = FileLock(self.folder / "locks" / f"{run_id}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout as error:
                raise RunBusy(f"run {run_id} is in use by another mlcd process; wait for it or end it") from error
        try:
            yield
        finally:
            lock.release()

    def is_live(self, run_id: str) -> bool:
        """Whether a process works on the run now. A run in state `running` that is not live was killed."""
        if self.folder is None or not (self.folder / "locks" / f"{run_id}.lock").exists():
            return False
        try:
            with self.lock(run_id):
                return False
        except RunBusy:
            return True

    # ---- internals

    def _prepare(self) -> None:
        if self.path:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
        version = self._version()
        if version == 0:
            with self._transaction() as db:
                if self._version() == 0:  # another process may have been faster
                    create_tables(db)
        elif version in SCHEMAS and self.path:
            with self._transaction() as db:
                if self._version() == version:
                    migrate(db, self.path, version, create_tables)
        elif version < SCHEMA:
            raise StoreError(
                f"{self.path} was written by a version before the first release (schema {version}, this one needs"
                f" {SCHEMA}): move the file away to start afresh, or set MLCD_HOME to another folder"
            )
        elif version > SCHEMA:
            raise StoreError(
                f"{self.path} was written by a newer mlcd (schema {version}, this one knows {SCHEMA}): upgrade mlcd, or"
                " set MLCD_HOME to another folder"
            )
        if lacking_columns(self._db):
            with self._transaction() as db:
                add_columns(db)
        self._db.execute("PRAGMA foreign_keys = ON")

    def _version(self) -> int:
        with closing(self._db.execute("PRAGMA user_version")) as cursor:
            return int(cursor.fetchone()[0])

    def _outputs(self, run_id: str) -> str:
        """The folder of a run's outputs; "" if there are none."""
        path = self.folder / "work" / run_id / "outputs" if self.folder else None
        return str(path) if path is not None and path.is_dir() else ""

    def _run_row(self, run_id: str) -> sqlite3.Row:
        row = self._one("SELECT * FROM runs WHERE run_id = ?", run_id)
        if row is not None:
            return row
        names = [r["run_id"] for r in self._db.execute("SELECT run_id FROM runs").fetchall()]
        matches = [name for name in names if name.startswith(run_id)]
        if len(matches) == 1:
            return self._run_row(matches[0])
        if matches:
            more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
            shown = ", ".join(sorted(matches)[:5])
            raise BadInput(f"{run_id!r} matches {len(matches)} runs: {shown}{more}; give more of the name")
        near = nearest(run_id, names)
        hint = f"; did you mean {near!r}?" if near else "; `mlcd runs` lists them"
        raise BadInput(f"there is no run {run_id!r}{hint}")

    def _status(self, run_id: str) -> Status:
        row = self._one("SELECT status FROM statuses WHERE run_id = ? ORDER BY id DESC LIMIT 1", run_id)
        return Status(row["status"]) if row else Status.RUNNING

    def _step(self, run_id: str, row: sqlite3.Row) -> Step:
        number, rate, outcome = row["number"], row["usd_per_hour_micros"], row["outcome"]
        return Step(
            number=number,
            round=row["round"],
            role=Role(row["role"]),
            authorisation=Authorisation(
                choice=self._decoded(run_id, f"choice of step {number}", row["choice"], Choice),
                attempt=row["attempt"],
                usd=Usd(row["authorised_usd_micros"]),
                seconds=row["authorised_seconds"],
            ),
            reason=row["reason"],
            usd_per_hour=None if rate is None else Usd(rate),
            started_seconds=row["started_seconds"],
            started_at=row["started_at"],
            outcome=None if outcome is None else self._decoded(run_id, f"outcome of step {number}", outcome, Outcome),
            ended_seconds=row["ended_seconds"],
            started_moment=self._moment(run_id, f"start of step {number}", row["started_moment"]),
            ended_moment=self._moment(run_id, f"end of step {number}", row["ended_moment"]),
        )

    def _moment(self, run_id: str, what: str, text: str | None) -> Moment | None:
        return None if text is None else self._decoded(run_id, what, text, Moment)

    def _summary(self, row: sqlite3.Row) -> RunSummary:
        header = self._decoded(row["run_id"], "header", row["header"], Header)
        return RunSummary(
            run_id=row["run_id"],
            created=header.created,
            cloud=header.cloud,
            strategy=header.strategy,
            status=Status(row["status"]),
            trials=row["trials"],
            spent=Usd(row["spent"]),
            kind=header.kind,
        )

    @overload
    def _decoded(self, run_id: str, what: str, text: str, as_type: type[T]) -> T: ...
    @overload
    def _decoded(self, run_id: str, what: str, text: str, as_type: Any) -> Any: ...
    def _decoded(self, run_id: str, what: str, text: str, as_type: Any) -> Any:
        """A stored value. Raises StoreError that names the run and the field."""
        try:
            return codec.decode(text, as_type)
        except codec.DecodeError as error:
            raise StoreError(
                f"{self._where}: run {run_id}: {what}: {error}; this version of mlcd cannot read it: upgrade mlcd, or"
                " restore the file from a copy"
            ) from error

    def _one(self, query: str, *values: object) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._db.execute(query, values).fetchone()
        return row

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing."""
        with self._explained():
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Several queries that see the same state."""
        with self._explained():
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("ROLLBACK")

    @property
    def _where(self) -> str:
        return str(self.path or "the store in memory")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns errors of SQLite and the system into one message that says what to do."""
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self._where}: {_advice(str(error))}") from error
        except OSError as error:
            raise StoreError(f"{self._where}: {error.strerror or error}; set MLCD_HOME to a writable folder") from error


def create_tables(db: sqlite3.Connection) -> None:
    """The tables of this schema in an empty database, inside the caller's transaction."""
    for statement in files("mlcd.store").joinpath("schema.sql").read_text(encoding="utf-8").split(";\n"):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {SCHEMA}")


def _add_status(db: sqlite3.Connection, run_id: str, status: Status) -> None:
    db.execute("INSERT INTO statuses (run_id, status, at) VALUES (?, ?, ?)", (run_id, status.value, time.time()))


def _started(run_id: str, step: Step) -> tuple[object, ...]:
    permission = step.authorisation
    return (
        run_id,
        step.number,
        step.round,
        step.role.value,
        codec.encode(permission.choice, Choice),
        permission.attempt,
        step.reason,
        None if step.usd_per_hour is None else step.usd_per_hour.micros,
        permission.usd.micros,
        permission.seconds,
        step.started_seconds,
        step.started_at,
        _encoded(step.started_moment),
    )


def _encoded(moment: Moment | None) -> str | None:
    return None if moment is None else codec.encode(moment)


def _short_kind(outcome: Outcome) -> str:
    if isinstance(outcome, Measurement):
        return "measured"
    if isinstance(outcome, Failure):
        return outcome.kind.value
    if isinstance(outcome, Attempt):
        return outcome.ending.value
    return "done" if isinstance(outcome, Epoch) else "failed"


def _call_values(call: FunctionCall) -> tuple[object, ...]:
    values = (getattr(call, name) for name in _CALL_FIELDS)
    return tuple(str(value) if isinstance(value, Decimal) else value for value in values)


def _advice(message: str) -> str:
    if "full" in message:
        return "the disk is full: free some space, then `mlcd resume` the run; everything paid so far is stored"
    if "readonly" in message or "unable to open" in message:
        return "is not writable: set MLCD_HOME to a writable folder"
    if "not a database" in message or "malformed" in message:
        return "is damaged or not a database: restore it from a copy, or move it away to start afresh"
    if "locked" in message:
        return "another mlcd process has locked it for too long: end that process and try again"
    return message
