"""The record of all runs: one append-only SQLite file in WAL mode under $MLCD_HOME, one transaction per change."""

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast, overload

from filelock import FileLock, Timeout

from mlcd import codec
from mlcd.errors import BadInput, RunBusy, StoreError, nearest
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal
from mlcd.home import close_tree, home, private_folder
from mlcd.home import envs as env_values
from mlcd.home.logs import lease_logs
from mlcd.problem import Problem
from mlcd.run.findings import Findings
from mlcd.run.header import Header, is_run_of
from mlcd.run.kind import Kind
from mlcd.run.logs import StepLogs, failed_log, step_logs
from mlcd.run.run import AnyRun, Run
from mlcd.run.step import Role, Step
from mlcd.run.verdict import Verdict
from mlcd.store.backups import back_up
from mlcd.store.damage import DamagedStore, NotWritable, damaged, damaged_run, explained, explained_os
from mlcd.store.migration import FIRST_SCHEMA, migrate, missing_columns, schema_in
from mlcd.store.opening import BUSY_SECONDS, FILE, connect, new_copy_folder, open_copy, open_in
from mlcd.store.place import Place, place_of, was_removed
from mlcd.store.rows import COUNTS, TABLES, UNREADABLE, DamagedRow, check_rows, insert, insert_numbered, select
from mlcd.store.step_rows import call_from, call_row, ended_row, started_row, step_from
from mlcd.trial.call import FunctionCall
from mlcd.trial.outcome import Status
from mlcd.units import Usd
from mlcd.untrusted import Malformed, delete_tree, is_utf8

__all__ = ["FILE", "SCHEMA", "RunSummary", "Store", "create_tables", "home"]

SCHEMA = 8
"""Schema 1 was used before the first release; 2 to 5 by version 0.1, which had tables for each kind of step. Schema 6
had the values of environment variables in the job's text, and no digests; schema 7 counted a run's rows only when its
status changed."""
CHECKED_BYTES = 64 * 2**20
"""A larger store is only checked quickly before money is spent: a check reads it once."""

T = TypeVar("T")
R = TypeVar("R", bound=Run[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One line of `mlcd runs`. `trials` counts the trials and epochs that have ended; `spent` covers all steps.

    goal    in words
    choice  the configuration that was chosen; "" where none was, or none yet
    damage  what is wrong with the run's record; "" where nothing is. Of a damaged run, only the name is known
    """

    run_id: str
    created: str
    cloud: str
    strategy: str
    status: Status | None
    trials: int
    spent: Usd
    kind: Kind = Kind.TRAIN
    goal: str = ""
    choice: str = ""
    damage: str = ""


class Store:
    """The runs of one home. Errors are StoreErrors that say what to do. Several processes may use a home at once."""

    def __init__(self, folder: Path | None, *, reading: bool = False) -> None:
        """Open or create the store in `folder`; None keeps it in memory (benchmarks).

        reading  only to read: works in a folder that cannot be written, too, where a copy is read
        """
        self.folder = folder
        self.path = folder / FILE if folder else None
        self._copy: Path | None = None
        self._place: Place | None = None
        try:
            with self._explained():
                self._open(folder)
        except StoreError as error:
            is_closed_to_us = isinstance(error, NotWritable) or "disk is full" in str(error)
            if not (reading and is_closed_to_us and folder is not None and folder.is_dir()):
                raise
            with self._explained():
                self._copy = new_copy_folder()
                self._db = open_copy(folder, self._copy)
                self._prepare(self._copy / FILE)

    def _open(self, folder: Path | None) -> None:
        self._db = open_in(folder) if folder else connect(None)
        self._place = place_of(self.path) if self.path else None
        try:
            self._prepare(self.path)
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()
        if self._copy is not None:
            shutil.rmtree(self._copy, ignore_errors=True)

    # ---- writing: each call is one transaction

    def add(self, run: AnyRun, *, spec: dict[str, Any], envs: Mapping[str, str] | None = None) -> None:
        """Add a new run with the job as the user wrote it. Raises ValueError if the run already has steps.

        spec  may have `envs`, the names of the job's environment variables
        envs  their values, which are kept apart until the run has ended
        """
        if run.steps or run.verdict is not None or run.findings is not None:
            raise ValueError(
                "a new run has no steps, verdict or findings; write those with start, end, conclude, finish"
            )
        row = {
            "run_id": run.run_id,
            "header": codec.encode(run.header),
            "problem": codec.encode(run.problem, Problem | FunctionProblem),
            "spec": codec.dump(spec),
        }
        if not run.header.simulated:
            self.check()
        with self._transaction() as db:
            insert(db, "runs", [row])
            _add_status(db, run.run_id, run.status)
            self.keep_envs(run.run_id, envs or {})  # last: if it fails, there is no run

    def start(self, run_id: str, steps: Sequence[Step]) -> None:
        """Record that these steps start together, all or none; call it before anything is spent on them."""
        rows = [started_row(run_id, step) for step in steps]
        with self._transaction() as db:
            insert(db, "steps_started", rows)

    def end(self, run_id: str, step: Step, calls: Sequence[FunctionCall] = ()) -> None:
        """Record the outcome of a step, with the calls of an epoch; the step is never run or paid again.

        Raises ValueError for a step without an outcome.
        """
        if step.outcome is None:
            raise ValueError(f"step {step.number} has no outcome yet")
        with self._transaction() as db:
            insert(db, "steps_ended", [ended_row(run_id, step, step.outcome)])
            insert(db, "calls", [call_row(run_id, step, call) for call in calls])

    def conclude(self, run_id: str, verdict: Verdict) -> None:
        """Record the verdict when the search, or a serverless training, ends. A later verdict replaces it."""
        with self._transaction() as db:
            insert_numbered(db, "verdicts", {"run_id": run_id, "verdict": codec.encode(verdict)})

    def set_status(self, run_id: str, status: Status) -> None:
        """Record a change of state."""
        with self._transaction() as db:
            _add_status(db, run_id, status)
        if status in (Status.INTERRUPTED, Status.SEARCHED):
            self._back_up(run_id)

    def finish(self, run_id: str, status: Status, findings: Findings | None) -> None:
        """Record the last state, with what reports show of the run. Findings are written once; a second time fails.

        The values of the run's environment variables are forgotten.
        """
        with self._transaction() as db:
            if findings is not None:
                insert(db, "findings", [{"run_id": run_id, "findings": codec.encode(findings)}])
            _add_status(db, run_id, status)
        if self.folder is not None:
            env_values.forget(self.folder, run_id)
            close_tree(self.folder / "work" / run_id)
        self._back_up(run_id)

    def remove(self, run_id: str) -> None:
        """Delete a run: its record, its nodes' files, its outputs. Backups keep its record until they are replaced.

        Raises RunBusy while a process works on it. `run_id` is the whole name.
        """
        with self.lock(run_id):
            with self._transaction() as db:
                for table in reversed(TABLES):
                    db.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608 - names of tables
            if self.folder is not None:
                env_values.forget(self.folder, run_id)
                delete_tree(self.folder / "work" / run_id, below=self.folder)
                (self.folder / "locks" / f"{run_id}.lock").unlink(missing_ok=True)

    def keep_envs(self, run_id: str, envs: Mapping[str, str]) -> None:
        """Keep values of environment variables until the run has ended."""
        if self.folder is not None:
            with self._explained():
                env_values.keep(self.folder, run_id, envs)

    def check(self) -> None:
        """Read the whole file. Raises StoreError where it is damaged: before money is spent on what it records."""
        if self.path is None:
            return
        with self._explained():
            pragma = "integrity_check" if self.path.stat().st_size <= CHECKED_BYTES else "quick_check"
            with closing(self._db.execute(f"PRAGMA {pragma}(1)")) as cursor:
                (answer,) = cursor.fetchone()
        if answer != "ok":
            raise damaged(self.path, str(answer))

    # ---- reading: a run is found by its name, or by a prefix that is unique

    def load(self, run_id: str) -> AnyRun:
        """Everything known of a run. Raises BadInput with the nearest name if there is no such run."""
        with self._snapshot():
            run = self._run_row(run_id)
            name = str(run["run_id"])
            with self._explained(name):
                status = self._status(name)
                started, ended = self._steps(name)
                verdict = self._last("SELECT * FROM verdicts WHERE run_id = ? ORDER BY id DESC LIMIT 1", name)
                findings = self._last("SELECT * FROM findings WHERE run_id = ?", name)
                if findings is not None and not status.is_final:
                    raise DamagedRow("its last status is missing")
        with self._explained(name):
            loaded = Run(
                header=self._decoded(name, "header", run["header"], Header),
                problem=cast(
                    Problem | FunctionProblem,
                    self._decoded(name, "problem", run["problem"], Problem | FunctionProblem),
                ),
                status=status,
                steps=tuple(step_from(row, ended.get(row["number"]), partial(self._decoded, name)) for row in started),
                verdict=None if verdict is None else self._decoded(name, "verdict", verdict["verdict"], Verdict),
                findings=None if findings is None else self._decoded(name, "findings", findings["findings"], Findings),
                outputs=self._outputs(name),
            )
            failed = failed_log(self._logs(loaded))
            return replace(loaded, log="" if failed is None else str(failed)).with_reported_work()

    def logs(self, run_id: str) -> tuple[StepLogs, ...]:
        """What the nodes and servers of a run wrote, by step, in order."""
        return self._logs(self.load(run_id))

    def latest(self, *, unfinished: bool = False) -> str:
        """The name of the newest run, or of the newest that has not ended. Raises BadInput where there is none.

        Raises StoreError where a newer one is damaged, so that it is not known whether it has ended.
        """
        with self._snapshot():
            for name in self._names():
                if not unfinished or self._is_open(name):
                    return name
        if unfinished:
            raise BadInput("there is no run to continue: all have ended; `mlcd runs` lists them")
        raise BadInput(f"there are no runs in {self.folder} yet; start with: mlcd demo")

    def runs_of_job(self, name: str, *, unfinished: bool = False) -> tuple[str, ...]:
        """The runs of a job by its name, the newest first; () where `name` is a run's own.

        unfinished  those that have not ended, where there are any
        """
        with self._snapshot():
            names = self._names()
            found = [] if name in names else [each for each in names if is_run_of(each, name)]
            if unfinished:
                found = [each for each in found if self._is_open(each)] or found
        return tuple(found)

    def reread(self, run: R) -> R:
        """The same run as it is stored now."""
        return cast(R, self.load(run.run_id))

    def spec(self, run_id: str, *, envs: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The job as the user wrote it, for resuming; `envs` are the values of its environment variables by name.

        envs  values that were given now: they replace those that were kept. One that is neither kept nor given is None

        Raises BadInput for a value of a variable that the job does not have.
        """
        with self._explained():
            row = self._run_row(run_id)
        name = str(row["run_id"])
        with self._explained(name):
            data = json.loads(str(row["spec"]))
            names = [str(each) for each in data.get("envs", ())]
            kept = env_values.kept(self.folder, name) if self.folder is not None else {}
        if unknown := set(envs or ()) - set(names):
            allowed = ", ".join(names) or "none: the job has no envs"
            raise BadInput(f"--env: the job of run {name} has no variable {min(unknown)!r}; allowed: {allowed}")
        values = {**kept, **(envs or {})}
        return {**data, "envs": {each: values.get(each) for each in names}} if names else data

    def calls(self, run_id: str) -> tuple[FunctionCall, ...]:
        """Every call of a function with its price, in order."""
        with self._explained():
            name = str(self._run_row(run_id)["run_id"])
        with self._explained(name):
            query = "SELECT * FROM calls WHERE run_id = ? ORDER BY number, shard, attempt"
            found = select(self._db, query, name)
            return tuple(call_from(row) for row in found)

    def kind(self, run_id: str) -> Kind:
        """The kind of job."""
        with self._explained():
            row = self._run_row(run_id)
        return self._decoded(str(row["run_id"]), "header", row["header"], Header).kind

    def status(self, run_id: str) -> Status:
        """The run's current state."""
        with self._explained():
            name = str(self._run_row(run_id)["run_id"])
        with self._explained(name):
            return self._status(name)

    def runs(self) -> tuple[RunSummary, ...]:
        """All runs, the newest first. A damaged one is listed by its name alone."""
        with self._snapshot():
            found = [self._summary_or_damage(name) for name in self._names()]
        return tuple(sorted(found, key=lambda line: line.created, reverse=True))

    # ---- one process at a time

    @contextmanager
    def lock(self, run_id: str) -> Iterator[None]:
        """Lock a run for this process. Raises RunBusy if it is locked. The system releases the lock at process exit."""
        if self.folder is None:
            yield
            return
        with self._explained():
            private_folder(self.folder / "locks")
            lock = FileLock(self.folder / "locks" / f"{run_id}.lock", mode=0o600)
            try:
                lock.acquire(timeout=0)
            except Timeout as error:
                raise RunBusy(f"run {run_id} is in use by another mlcd process; wait for it or end it") from error
        try:
            yield
        finally:
            if not self._is_recorded(run_id):  # deleted meanwhile: nothing of it stays
                with suppress(OSError):
                    Path(lock.lock_file).unlink(missing_ok=True)
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
        except NotWritable:
            return False  # a home that nobody can write

    # ---- internals

    def _prepare(self, path: Path | None) -> None:
        if path:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
        version = self._version()
        if version not in (0, SCHEMA) and version < FIRST_SCHEMA:
            raise StoreError(
                f"{self.path} was written by a version before the first release (schema {version}, this one needs"
                f" {SCHEMA}): move the file away to start afresh, or set MLCD_HOME to another folder"
            )
        if version > SCHEMA:
            raise StoreError(
                f"{self.path} was written by a newer mlcd (schema {version}, this one knows {SCHEMA}): upgrade mlcd, or"
                " set MLCD_HOME to another folder; if there was no newer mlcd, the file is damaged, and"
                " `mlcd runs --restore` saves its runs"
            )
        if (found := schema_in(self._db)) not in (version, None):
            if self._version() != version:  # another process made or migrated it just now
                self._prepare(path)
                return
            raise damaged(self.path, f"it says that it has schema {version}, but its tables are of schema {found}")
        if version == 0:
            with self._transaction() as db:
                if self._version() == 0:  # another process may have been faster
                    create_tables(db)
        elif version < SCHEMA and path:
            with self._transaction() as db:
                if self._version() == version:
                    migrate(db, path, version, create_tables)
            self._vacuum()
        for table, column, _ in missing_columns(self._db, create_tables)[:1]:
            raise damaged(self.path, f"its table {table} lacks the column {column}")
        self._db.execute("PRAGMA foreign_keys = ON")

    def _vacuum(self) -> None:
        """Drop free pages after a migration: they may hold what was deleted."""
        with suppress(*UNREADABLE):
            self._db.execute("PRAGMA busy_timeout = 100")
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._db.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")

    def _back_up(self, run_id: str) -> None:
        """Keep a backup of the store as it is now, where it is time for one."""
        if self.path is not None:
            with suppress(StoreError, *UNREADABLE):
                header = self._decoded(run_id, "header", self._run_row(run_id)["header"], Header)
                back_up(self.path, paid=not header.simulated)

    def _version(self) -> int:
        with closing(self._db.execute("PRAGMA user_version")) as cursor:
            return int(cursor.fetchone()[0])

    def _logs(self, run: AnyRun) -> tuple[StepLogs, ...]:
        return () if self.folder is None else step_logs(run.steps, lease_logs(self.folder, run.run_id))

    def _outputs(self, run_id: str) -> str:
        """The folder of a run's outputs; "" if there are none."""
        path = self.folder / "work" / run_id / "outputs" if self.folder else None
        return str(path) if path is not None and path.is_dir() else ""

    def _run_row(self, run_id: str) -> dict[str, object]:
        """What was recorded when it started. Raises StoreError where a row of the run is missing in any table."""
        with self._explained(run_id):
            row = self._last("SELECT * FROM runs WHERE run_id = ?", run_id) if is_utf8(run_id) else None
            if row is not None:
                check_rows(self._db, run_id)
                return row
        names = self._names()
        if run_id in names:
            raise damaged_run(self.path, run_id, "what was recorded when it started is missing, or not in the index")
        matches = [name for name in names if name.startswith(run_id)]
        if len(matches) == 1:
            return self._run_row(matches[0])
        if matches:
            more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
            shown = ", ".join(sorted(matches)[:5])
            raise BadInput(f"{run_id!r} matches {len(matches)} runs: {shown}{more}; give more of the name")
        near = nearest(run_id, names)
        hint = f"; did you mean {near!r}?" if near else "; `mlcd runs` lists them"
        if run_id.endswith((".yaml", ".yml")):
            hint = ": it is the name of a job file, which starts a new run; `mlcd runs` lists the runs"
        raise BadInput(f"there is no run {run_id!r}{hint}")

    def _names(self) -> list[str]:
        """The names of all runs, the newest first, from the table itself; then those that it has lost."""
        found = self._db.execute("SELECT run_id FROM runs NOT INDEXED ORDER BY rowid DESC").fetchall()
        counted = self._db.execute(f"SELECT run_id FROM {COUNTS} NOT INDEXED ORDER BY rowid DESC").fetchall()  # noqa: S608
        return list(dict.fromkeys(str(row["run_id"]) for row in (*found, *counted)))

    def _is_recorded(self, run_id: str) -> bool:
        """Whether there is a run of this name; True also where that cannot be told."""
        with suppress(*UNREADABLE):
            return self._db.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is not None
        return True

    def _status(self, run_id: str) -> Status:
        row = self._last("SELECT * FROM statuses WHERE run_id = ? ORDER BY id DESC LIMIT 1", run_id)
        if row is None:
            raise DamagedRow("its status is missing")
        return Status(str(row["status"]))

    def _is_open(self, run_id: str) -> bool:
        """Whether a run has not ended. Raises StoreError where it is damaged: another one is not what is meant."""
        with self._explained(run_id):
            return not self._status(run_id).is_final

    def _last(self, query: str, run_id: str) -> dict[str, object] | None:
        return next(iter(select(self._db, query, run_id)), None)

    def _steps(self, run_id: str) -> tuple[list[dict[str, Any]], dict[Any, dict[str, Any]]]:
        """The rows of the steps' starts, in order, and of their ends, by number."""
        started = select(self._db, "SELECT * FROM steps_started WHERE run_id = ? ORDER BY number", run_id)
        ended = {row["number"]: row for row in select(self._db, "SELECT * FROM steps_ended WHERE run_id = ?", run_id)}
        numbers = [row["number"] for row in started]
        if numbers != list(range(1, len(numbers) + 1)) or not ended.keys() <= set(numbers):
            raise DamagedRow("the start of a step is missing")
        return started, ended

    def _summary_or_damage(self, run_id: str) -> RunSummary:
        try:
            with self._explained(run_id):
                return self._summary(run_id)
        except StoreError as error:
            what = error.what if isinstance(error, DamagedStore) else str(error)
            return RunSummary(
                run_id=run_id, created="", cloud="", strategy="", status=None, trials=0, spent=Usd(0), damage=what
            )

    def _summary(self, run_id: str) -> RunSummary:
        row = self._run_row(run_id)
        header = self._decoded(run_id, "header", row["header"], Header)
        goal = self._goal(run_id, str(row["problem"]))
        last = self._last("SELECT * FROM verdicts WHERE run_id = ? ORDER BY id DESC LIMIT 1", run_id)
        verdict = None if last is None else self._decoded(run_id, "verdict", last["verdict"], Verdict)
        started, ended = self._steps(run_id)
        counted = (Role.TRIAL.value, Role.EPOCH.value)
        return RunSummary(
            run_id=run_id,
            created=header.created,
            cloud=header.cloud,
            strategy=header.strategy,
            status=self._status(run_id),
            trials=sum(row["role"] in counted and row["number"] in ended for row in started),
            spent=Usd(sum(row["usd_micros"] for row in ended.values())),
            kind=header.kind,
            goal=goal.serving_text if header.kind is Kind.SERVE else str(goal),
            choice="" if verdict is None or verdict.choice is None else str(verdict.choice.config),
        )

    def _goal(self, run_id: str, problem: str) -> Goal:
        """The goal alone: a problem has thousands of configurations, and a list of runs needs none of them."""
        (kept,) = (value for value in json.loads(problem).values())  # a union: {"problem": {...}}
        return self._decoded(run_id, "problem.goal", codec.dump(kept["goal"]), Goal)

    @overload
    def _decoded(self, run_id: str, what: str, text: object, as_type: type[T]) -> T: ...
    @overload
    def _decoded(self, run_id: str, what: str, text: object, as_type: Any) -> Any: ...
    def _decoded(self, run_id: str, what: str, text: object, as_type: Any) -> Any:
        """A stored value. Raises StoreError that names the run and the field."""
        try:
            return codec.decode(str(text), as_type)
        except codec.DecodeError as error:
            raise StoreError(
                f"{self._where}: run {run_id}: {what}: {error}; this version of mlcd cannot read it: upgrade mlcd, or"
                " restore the file from a copy"
            ) from error

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
            if self.path and self._place and was_removed(self._db, self.path, self._place):
                self._db.close()  # first: it removes files beside its own, by their names
                self._open(self.folder)

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
    def _explained(self, run_id: str | None = None) -> Iterator[None]:
        """Turns errors of SQLite and the system, and damaged rows, into one message that says what to do.

        run_id  the run whose rows are read; None where none is known yet
        """
        try:
            yield
        except UNREADABLE as error:
            found = explained(error, self.path)
            if run_id is not None and isinstance(found, DamagedStore):
                raise damaged_run(self.path, run_id, found.what) from error
            raise found from error
        except (OverflowError, UnicodeEncodeError) as error:
            what = "a number is larger" if isinstance(error, OverflowError) else "a text has characters other"
            raise StoreError(f"{self._where}: {what} than can be stored ({error})") from error
        except Malformed as error:
            raise StoreError(f"{error}; remove the file and give the values with --env") from error
        except OSError as error:
            raise explained_os(error, self.path) from error
        except (DamagedRow, ValueError, TypeError, KeyError, RecursionError) as error:
            if run_id is None:
                raise
            raise damaged_run(self.path, run_id, str(error)) from error


def create_tables(db: sqlite3.Connection) -> None:
    """The tables of this schema in an empty database, inside the caller's transaction."""
    for statement in files("mlcd.store").joinpath("schema.sql").read_text(encoding="utf-8").split(";\n"):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {SCHEMA}")


def _add_status(db: sqlite3.Connection, run_id: str, status: Status) -> None:
    insert_numbered(db, "statuses", {"run_id": run_id, "status": status.value, "at": time.time()})
