"""The record of all runs: append-only, one transaction per change; in a file of this machine or on a team's server."""

import getpass
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from mlcd import codec
from mlcd.errors import BadInput, StoreError
from mlcd.functions import FunctionProblem
from mlcd.home import close_tree, home
from mlcd.home import envs as env_values
from mlcd.home.logs import lease_logs
from mlcd.problem import Problem
from mlcd.run.coherent import check_coherent
from mlcd.run.findings import Findings
from mlcd.run.header import Header, is_run_of
from mlcd.run.kind import Kind
from mlcd.run.logs import StepLogs, failed_log, step_logs
from mlcd.run.run import AnyRun, Run
from mlcd.run.step import Step
from mlcd.run.verdict import Verdict
from mlcd.store.address import parsed
from mlcd.store.database import Connection, Database
from mlcd.store.file_locks import forget_mark, is_marked, lock_file, mark_here
from mlcd.store.opening import BUSY_SECONDS, FILE
from mlcd.store.records import Records, decoded, explained, header_in
from mlcd.store.rows import COUNTS, TABLES, insert, insert_numbered, select
from mlcd.store.sqlite import SCHEMA, SqliteDatabase
from mlcd.store.step_rows import call_from, call_row, ended_row, started_row, step_from
from mlcd.store.summary import RunFilter, RunSummary, find_names
from mlcd.trial.call import FunctionCall
from mlcd.trial.outcome import Status
from mlcd.untrusted import delete_tree, is_utf8

__all__ = ["FILE", "SCHEMA", "URL_VARIABLE", "RunSummary", "Store", "has_store", "home"]

URL_VARIABLE = "MLCD_STORE"
"""The environment variable with the address of a team's server; without it, runs are in the home."""
T = TypeVar("T")
R = TypeVar("R", bound=Run[Any])


def has_store(folder: Path) -> bool:
    """Whether there may be runs to read: a team's server, or the file of this home."""
    return bool(os.environ.get(URL_VARIABLE)) or (folder / FILE).exists()


def open_database(
    folder: Path | None, *, reading: bool = False, url: str | None = None, busy_seconds: float = BUSY_SECONDS
) -> Database:
    """See Store for the arguments. Raises StoreError, BadInput, MissingExtra."""
    address = os.environ.get(URL_VARIABLE, "") if url is None else url
    if folder is None or not address:
        return SqliteDatabase(folder, reading=reading, busy_seconds=busy_seconds)
    parsed(address, URL_VARIABLE)  # before the extra that a right address needs
    from mlcd.store.postgres import PostgresDatabase  # noqa: PLC0415 - an extra

    patience = busy_seconds if busy_seconds < BUSY_SECONDS else None
    return PostgresDatabase(address, folder, reading=reading, reconnect_seconds=patience)


class Store:
    """The runs of one home, or of a team. Errors are StoreErrors that say what to do. Several processes may use it."""

    def __init__(
        self,
        folder: Path | None,
        *,
        reading: bool = False,
        url: str | None = None,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        """Open or create the store in `folder`; None keeps it in memory (benchmarks).

        folder   of this machine: what belongs to runs and is not their record (logs, outputs, values of variables)
        reading  only to read: works in a folder that cannot be written, too, where a copy is read
        url      of the server that has the record; None: as MLCD_STORE says, "": the file in `folder`
        busy_seconds  how long to wait for other processes that have locked the file, or, if shorter than usual, for a
            server that is away
        """
        self.folder = folder
        self._database = open_database(folder, reading=reading, url=url, busy_seconds=busy_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    @property
    def place(self) -> str:
        """Where the runs are, for messages: the home, or the server without a password."""
        return self._database.where if self._database.shared else str(self.folder)

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
        header = replace(run.header, made_by=_me()) if self._database.shared else run.header
        row = {
            "run_id": run.run_id,
            "header": codec.encode(header),
            "problem": codec.encode(run.problem, Problem | FunctionProblem),
            "spec": codec.dump(spec),
        }
        if not run.header.simulated:
            self.check()
        if self.folder is not None and self._database.shared:
            with self._explained():
                mark_here(self.folder, row)

        def work(db: Connection) -> None:
            insert(db, "runs", [row])
            _add_status(db, run.run_id, run.status)
            self.keep_envs(run.run_id, envs or {})  # last: if it fails, there is no run

        self._write(work)

    def start(self, run_id: str, steps: Sequence[Step]) -> None:
        """Record that these steps start together, all or none; call it before anything is spent on them."""
        rows = [started_row(run_id, step) for step in steps]
        self._write(lambda db: insert(db, "steps_started", rows))

    def end(self, run_id: str, step: Step, calls: Sequence[FunctionCall] = ()) -> None:
        """Record the outcome of a step, with the calls of an epoch; the step is never run or paid again.

        Raises ValueError for a step without an outcome.
        """
        if step.outcome is None:
            raise ValueError(f"step {step.number} has no outcome yet")
        row = ended_row(run_id, step, step.outcome)
        call_rows = [call_row(run_id, step, call) for call in calls]

        def work(db: Connection) -> None:
            insert(db, "steps_ended", [row])
            insert(db, "calls", call_rows)

        self._write(work)

    def conclude(self, run_id: str, verdict: Verdict) -> None:
        """Record the verdict when the search, or a serverless training, ends. A later verdict replaces it."""
        row = {"run_id": run_id, "verdict": codec.encode(verdict)}
        self._write(lambda db: insert_numbered(db, "verdicts", row))

    def set_status(self, run_id: str, status: Status) -> None:
        """Record a change of state."""
        self._write(lambda db: _add_status(db, run_id, status))
        if status in (Status.INTERRUPTED, Status.SEARCHED):
            self._back_up(run_id)

    def finish(self, run_id: str, status: Status, findings: Findings | None) -> None:
        """Record the last state, with what reports show of the run. Findings are written once; a second time fails.

        The values of the run's environment variables are forgotten.
        """

        def work(db: Connection) -> None:
            if findings is not None:
                insert(db, "findings", [{"run_id": run_id, "findings": codec.encode(findings)}])
            _add_status(db, run_id, status)

        self._write(work)
        if self.folder is not None:
            env_values.forget(self.folder, run_id)
            close_tree(self.folder / "work" / run_id)
        self._back_up(run_id)

    def remove(self, run_id: str) -> None:
        """Delete a run: its record, its nodes' files, its outputs. Backups keep its record until they are replaced.

        Raises RunBusy while a process works on it. `run_id` is the whole name.
        """

        def work(db: Connection) -> None:
            for table in reversed(TABLES):
                db.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608 - names of tables

        with self.lock(run_id):
            self._write(work)
            if self.folder is not None:
                env_values.forget(self.folder, run_id)
                delete_tree(self.folder / "work" / run_id, below=self.folder)
                lock_file(self.folder, run_id).unlink(missing_ok=True)
                forget_mark(self.folder, run_id)

    def keep_envs(self, run_id: str, envs: Mapping[str, str]) -> None:
        """Keep values of environment variables until the run has ended."""
        if self.folder is not None:
            with self._explained():
                env_values.keep(self.folder, run_id, envs)

    def check(self) -> None:
        """Raises StoreError where the store is damaged or cannot be written: before money is spent."""
        with self._explained():
            self._database.check()

    # ---- reading: a run is found by its name, or by a prefix that is unique

    def load(self, run_id: str) -> AnyRun:
        """Everything known of a run. Raises BadInput with the nearest name if there is no such run."""
        rows = self._read(lambda records: records.run_rows(run_id))
        name, verdict, findings = rows.run_id, rows.verdict, rows.findings
        value = partial(decoded, self._database, name)
        with self._explained(name):
            loaded = Run(
                header=header_in(self._database, rows.run),
                problem=cast(
                    Problem | FunctionProblem, value("problem", rows.run["problem"], Problem | FunctionProblem)
                ),
                status=rows.status,
                steps=tuple(step_from(each, rows.ended.get(each["number"]), value) for each in rows.started),
                verdict=None if verdict is None else value("verdict", verdict["verdict"], Verdict),
                findings=None if findings is None else value("findings", findings["findings"], Findings),
                outputs=self._outputs(name),
            )
            check_coherent(loaded)
            failed = failed_log(self._logs(loaded))
            return replace(loaded, log="" if failed is None else str(failed)).with_reported_work()

    def logs(self, run_id: str) -> tuple[StepLogs, ...]:
        """What the nodes and servers of a run wrote, by step, in order."""
        return self._logs(self.load(run_id))

    def latest(self, *, unfinished: bool = False) -> str:
        """The name of the newest run, or of the newest that has not ended. Raises BadInput where there is none.

        In a store that others use too, an unfinished run is one that can be continued here.
        Raises StoreError where a newer one is damaged, so that it is not known whether it has ended.
        """

        def work(records: Records) -> str | None:
            for name in records.names():
                if not unfinished or (self._is_own(records, name) and records.is_open(name)):
                    return name
            return None

        found = self._read(work)
        if found is not None:
            return found
        if unfinished:
            raise BadInput("there is no run to continue: all have ended; `mlcd runs` lists them")
        raise BadInput(f"there are no runs in {self.place} yet; start with: mlcd demo")

    def runs_of_job(self, name: str, *, unfinished: bool = False) -> tuple[str, ...]:
        """The runs of a job by its name, the newest first; () where `name` is a run's own.

        unfinished  those that have not ended, where there are any
        """

        def work(records: Records) -> list[str]:
            names = records.names()
            found = [] if name in names else [each for each in names if is_run_of(each, name)]
            if unfinished:
                found = [each for each in found if records.is_open(each)] or found
            return found

        return tuple(self._read(work))

    def reread(self, run: R) -> R:
        """The same run as it is stored now."""
        return cast(R, self.load(run.run_id))

    def spec(self, run_id: str, *, envs: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The job as the user wrote it, for resuming; `envs` are the values of its environment variables by name.

        envs  values that were given now: they replace those that were kept. One that is neither kept nor given is None

        Raises BadInput for a value of a variable that the job does not have.
        """
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

        def work(records: Records) -> tuple[FunctionCall, ...]:
            name = str(records.run_row(run_id)["run_id"])
            with self._explained(name):
                query = "SELECT * FROM calls WHERE run_id = ? ORDER BY number, shard, attempt"
                return tuple(call_from(row) for row in select(records.db, query, name))

        return self._read(work)

    def kind(self, run_id: str) -> Kind:
        """The kind of job."""
        row = self._run_row(run_id)
        with self._explained(str(row["run_id"])):
            return header_in(self._database, row).kind

    def status(self, run_id: str) -> Status:
        """The run's current state."""

        def work(records: Records) -> Status:
            name = str(records.run_row(run_id)["run_id"])
            with self._explained(name):
                return records.status(name)

        return self._read(work)

    def runs(self) -> tuple[RunSummary, ...]:
        """All runs, the newest first. A damaged one is listed by its name alone."""
        found = self._read(lambda records: [records.summary_or_damage(name) for name in records.names()])
        return tuple(sorted(found, key=lambda line: line.created, reverse=True))

    def count(self) -> int:
        """How many runs there are."""
        return len(self._read(lambda records: records.names()))

    def newest(self, most: int) -> Iterator[RunSummary]:
        """The runs that were added last, the newest first: each is read when it is asked for."""
        for name in self._read(lambda records: records.names())[:most]:
            with suppress(BadInput):  # deleted meanwhile
                yield self.summary(name)

    def find(self, wanted: RunFilter, *, limit: int, offset: int = 0) -> tuple[tuple[str, ...], int]:
        """The names of `limit` runs, the newest first, after `offset` others; and how many are wanted in all."""
        names, count = self._read(lambda records: find_names(records.db, wanted, limit=limit, offset=offset))
        return tuple(names), count

    def summary(self, run_id: str) -> RunSummary:
        """One line of `runs`. `run_id` is the whole name."""
        return self._read(lambda records: records.summary_or_damage(run_id))

    def row_count(self, run_id: str) -> int:
        """How many rows the run has: it grows with everything that is recorded. 0 if there is no run of this name."""
        if not is_utf8(run_id) or "\0" in run_id:
            return 0
        query = f"SELECT row_count FROM {COUNTS} WHERE run_id = ?"  # noqa: S608 - a name
        row = self._read(lambda records: records.db.execute(query, (run_id,)).fetchone())
        return 0 if row is None else int(row["row_count"])

    def changes(self) -> int:
        """A number that is another one after somebody has written. Cheap to ask."""
        with self._explained():
            return self._database.changes()

    def is_as_opened(self) -> bool:
        """Whether this connection still shows what others see: the same file, of this version. Cheap to ask."""
        with self._explained():
            return self._database.is_as_opened()

    # ---- one process at a time

    @contextmanager
    def lock(self, run_id: str) -> Iterator[None]:
        """Lock a run for this process. Raises RunBusy if it is locked. The lock of a process that dies is gone."""
        with ExitStack() as leaving:
            if self._database.locks is not None:
                with self._explained():
                    leaving.enter_context(self._database.locks.held(run_id))
            yield

    def is_live(self, run_id: str) -> bool:
        """Whether a process works on the run now. A run in state `running` that is not live was killed."""
        with self._explained():
            return self._database.locks is not None and self._database.locks.is_held(run_id)

    def owner(self, run_id: str) -> int | None:
        """The process of this machine that works on the run now; None where none does, or it is not known."""
        with self._explained():
            return None if self._database.locks is None else self._database.locks.owner(run_id)

    def is_here(self, run_id: str) -> bool:
        """Whether the run was started from this home: always, unless others use the store too."""
        return self._read(lambda records: self._is_own(records, run_id))

    # ---- internals

    def _write(self, work: Callable[[Connection], T]) -> T:
        with self._explained():
            return self._database.write(work)

    def _read(self, work: Callable[[Records], T]) -> T:
        """Several queries that see the same state."""
        with self._explained():
            return self._database.read(lambda db: work(Records(self._database, db)))

    def _is_own(self, records: Records, run_id: str) -> bool:
        """As `is_here`. The very run that was started here, not one that a colleague has recorded under its name."""
        if self.folder is None or not self._database.shared:
            return True
        found = records.last("SELECT * FROM runs WHERE run_id = ?", run_id) if is_utf8(run_id) else None
        return found is not None and is_marked(self.folder, found)

    def _run_row(self, run_id: str) -> dict[str, object]:
        return self._read(lambda records: records.run_row(run_id))

    def _explained(self, run_id: str | None = None) -> AbstractContextManager[None]:
        return explained(self._database, run_id)

    def _back_up(self, run_id: str) -> None:
        """Keep a backup of the store as it is now, where it is time for one."""
        with suppress(StoreError, *self._database.errors):
            header = decoded(self._database, run_id, "header", self._run_row(run_id)["header"], Header)
            self._database.back_up(paid=not header.simulated)

    def _logs(self, run: AnyRun) -> tuple[StepLogs, ...]:
        return () if self.folder is None else step_logs(run.steps, lease_logs(self.folder, run.run_id))

    def _outputs(self, run_id: str) -> str:
        """The folder of a run's outputs; "" if there are none."""
        path = self.folder / "work" / run_id / "outputs" if self.folder else None
        return str(path) if path is not None and path.is_dir() else ""


def _add_status(db: Connection, run_id: str, status: Status) -> None:
    insert_numbered(db, "statuses", {"run_id": run_id, "status": status.value, "at": time.time()})


def _me() -> str:
    """`ana@gpu-box`: who starts a run, and where its files are."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
