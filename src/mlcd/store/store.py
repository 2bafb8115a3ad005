"""What happened: one SQLite file in WAL mode under $MLCD_HOME, append-only, one transaction a trial."""

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout

from mlcd.errors import BadInput, RunBusy, StoreError, nearest
from mlcd.ledger import Authorisation
from mlcd.store import codec
from mlcd.store.epoch_tables import TABLES, added_columns
from mlcd.store.serving_codec import serving_from_json
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.record import Ending, FinalRun, Naive, Relaxation, RunRecord, TrialRow
from mlcd.trial.trial import History, Trial
from mlcd.units import Usd

SCHEMA = 5
"""1 was that of versions before the first release; 2 knew one training a run; 3 knew no load tests; 4 knew no parts of
epochs."""
_FROM_3 = ("ALTER TABLE finals_ended ADD COLUMN load TEXT",)
_FROM_2 = (
    "ALTER TABLE finals_ended ADD COLUMN reached_samples REAL NOT NULL DEFAULT 0",
    "ALTER TABLE finals_ended ADD COLUMN samples_per_second REAL",
    "ALTER TABLE finals_ended ADD COLUMN message TEXT NOT NULL DEFAULT ''",
    *_FROM_3,
)
_CHANGES: Mapping[int, tuple[str, ...]] = {2: _FROM_2, 3: _FROM_3, 4: ()}
FILE = "mlcd.sqlite3"
_END_FINAL = "INSERT INTO finals_ended VALUES (?,?,?,?,?,?,?,?,?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One line of `mlcd runs`."""

    run_id: str
    created: str
    cloud: str
    strategy: str
    status: Status
    trials: int
    spent: Usd
    kind: str = "train"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedTrial:
    """A trial that was authorised; in flight until it has ended."""

    number: int
    round: int
    reason: str
    usd_per_hour: Usd
    authorisation: Authorisation
    started_seconds: float
    started_at: float

    def ended(self, trial: Trial) -> TrialRow:
        """The whole row, once it is known what came of it."""
        return TrialRow(
            number=self.number,
            round=self.round,
            reason=self.reason,
            usd_per_hour=self.usd_per_hour,
            authorised_usd=self.authorisation.usd,
            authorised_seconds=self.authorisation.seconds,
            started_seconds=self.started_seconds,
            trial=trial,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedFinal:
    """A training that was authorised; in flight until it has ended."""

    authorisation: Authorisation
    started_at: float


def home() -> Path:
    """$MLCD_HOME, by default ~/.mlcd."""
    return Path(os.environ.get("MLCD_HOME") or Path.home() / ".mlcd").expanduser()


class Store:
    """The runs on one home. Raises StoreError with what to do; two processes may use one home at a time."""

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

    def add_run(self, record: RunRecord, *, kind: str, spec: dict[str, Any]) -> None:
        """A new run, before its first trial."""
        values = (
            record.run_id, record.created, record.problem.name, kind, record.cloud, int(record.simulated),
            record.strategy, record.seed, record.parallel, record.version, record.catalog_date,
            codec.dump(codec.problem_to_json(record.problem)), codec.dump(spec),
        )  # fmt: skip
        with self._transaction() as db:
            db.execute(f"INSERT INTO runs VALUES ({','.join('?' * len(values))})", values)  # noqa: S608 - only marks
            self._set_status(db, record.run_id, record.status)

    def start_trials(self, run_id: str, trials: Sequence[StartedTrial]) -> None:
        """Leave to start a round of trials side by side, all or none, written before anything is spent."""
        values = [
            (
                run_id, t.number, t.round, codec.dump(codec.config_to_json(t.authorisation.config)),
                t.authorisation.attempt, t.reason, t.usd_per_hour.micros, t.authorisation.usd.micros,
                t.authorisation.seconds, t.started_seconds, t.started_at,
            )
            for t in trials
        ]  # fmt: skip
        with self._transaction() as db:
            db.executemany("INSERT INTO trials_started VALUES (?,?,?,?,?,?,?,?,?,?,?)", values)

    def end_trial(self, run_id: str, number: int, trial: Trial) -> None:
        """What came of it; from here on it is never run or paid again."""
        outcome = codec.trial_to_json(trial)
        values = (run_id, number, outcome["kind"], trial.seconds, trial.usd.micros, codec.dump(outcome))
        with self._transaction() as db:
            db.execute("INSERT INTO trials_ended VALUES (?,?,?,?,?,?)", values)

    def set_verdict(
        self,
        run_id: str,
        *,
        search_seconds: float,
        stopped: str,
        choice: Plan | None,
        naive: tuple[Naive, ...],
        relaxations: tuple[Relaxation, ...],
    ) -> None:
        """The search's end. A second verdict for a run is refused by the table."""
        values = (
            run_id,
            search_seconds,
            stopped,
            codec.dump(codec.plan_to_json(choice)) if choice else None,
            codec.dump([codec.naive_to_json(n) for n in naive]),
            codec.dump([codec.relaxation_to_json(r) for r in relaxations]),
        )
        with self._transaction() as db:
            db.execute("INSERT INTO verdicts VALUES (?,?,?,?,?,?)", values)

    def start_final(self, run_id: str, leave: Authorisation, started_at: float) -> None:
        """Leave to train, written before anything is spent on it."""
        config = codec.dump(codec.config_to_json(leave.config))
        values = (run_id, leave.attempt, config, leave.usd.micros, leave.seconds, started_at)
        with self._transaction() as db:
            db.execute("INSERT INTO finals_started VALUES (?,?,?,?,?,?)", values)

    def end_attempt(self, run_id: str, attempt: int, run: FinalRun) -> None:
        """An attempt at the training that is begun again: what it cost until then."""
        with self._transaction() as db:
            db.execute(_END_FINAL, (run_id, attempt, *_ended(run)))

    def end_run(self, run_id: str, status: Status, final: FinalRun | None, *, attempt: int = 1) -> None:
        """The training's end, or the end without one."""
        with self._transaction() as db:
            if final is not None:
                db.execute(_END_FINAL, (run_id, attempt, *_ended(final)))
            self._set_status(db, run_id, status)

    def set_status(self, run_id: str, status: Status) -> None:
        """A change of state without a result."""
        with self._transaction() as db:
            self._set_status(db, run_id, status)

    # ---- reading

    def record(self, run_id: str) -> RunRecord:
        """Everything known of a run. Raises BadInput with the nearest name when there is none."""
        run = self._run_row(run_id)
        with self._explained():
            verdict = self._one("SELECT * FROM verdicts WHERE run_id = ?", run["run_id"])
            finals = self._db.execute(
                "SELECT s.config, e.* FROM finals_started s JOIN finals_ended e USING (run_id, attempt)"
                " WHERE run_id = ? ORDER BY attempt",
                (run["run_id"],),
            ).fetchall()
        attempts = tuple(map(_final, finals))
        rows = self.rows(run["run_id"])
        told = History(tuple(row.trial for row in rows)).total_samples
        return RunRecord(
            run_id=run["run_id"],
            created=run["created"],
            cloud=run["cloud"],
            simulated=bool(run["simulated"]),
            strategy=run["strategy"],
            seed=run["seed"],
            parallel=run["parallel"],
            version=run["version"],
            catalog_date=run["catalog_date"],
            problem=codec.problem_from_json(json.loads(run["problem"])).with_work_told(told),
            status=self.status(run["run_id"]),
            rows=rows,
            search_seconds=verdict["search_seconds"] if verdict else simulated_elapsed(rows),
            stopped=verdict["stopped"] if verdict else "",
            choice=codec.plan_from_json(json.loads(verdict["choice"])) if verdict and verdict["choice"] else None,
            naive=tuple(codec.naive_from_json(n) for n in json.loads(verdict["naive"])) if verdict else (),
            relaxations=tuple(codec.relaxation_from_json(r) for r in json.loads(verdict["relaxations"]))
            if verdict
            else (),
            final=next((run for run in attempts if not run.ending.is_begun_again), None),
            earlier=tuple(run for run in attempts if run.ending.is_begun_again),
            outputs=self._outputs(run["run_id"]),
            kind=run["kind"],
            serving=serving_from_json(json.loads(run["spec"]).get("serving")),
        )

    def spec(self, run_id: str) -> dict[str, Any]:
        """The job as it was written, for resuming."""
        data: dict[str, Any] = json.loads(self._run_row(run_id)["spec"])
        return data

    def rows(self, run_id: str) -> tuple[TrialRow, ...]:
        """The trials that ended, in order."""
        with self._explained():
            found = self._db.execute(
                "SELECT s.*, e.outcome FROM trials_started s JOIN trials_ended e USING (run_id, number)"
                " WHERE run_id = ? ORDER BY number",
                (run_id,),
            ).fetchall()
        return tuple(_started(row).ended(codec.trial_from_json(json.loads(row["outcome"]))) for row in found)

    def in_flight(self, run_id: str) -> tuple[StartedTrial, ...]:
        """The trials that were started and have no end."""
        with self._explained():
            found = self._db.execute(
                "SELECT s.* FROM trials_started s LEFT JOIN trials_ended e USING (run_id, number)"
                " WHERE run_id = ? AND e.number IS NULL ORDER BY number",
                (run_id,),
            ).fetchall()
        return tuple(_started(row) for row in found)

    def final_in_flight(self, run_id: str) -> StartedFinal | None:
        """The training that was started and has no end."""
        with self._explained():
            row = self._one(
                "SELECT s.* FROM finals_started s LEFT JOIN finals_ended e USING (run_id, attempt)"
                " WHERE run_id = ? AND e.attempt IS NULL",
                run_id,
            )
        return None if row is None else StartedFinal(authorisation=_leave(row), started_at=row["started_at"])

    def first_start(self, run_id: str) -> float | None:
        """Wall clock of the first trial's start: where a real deadline begins."""
        with self._explained():
            row = self._one("SELECT min(started_at) AS at FROM trials_started WHERE run_id = ?", run_id)
        return row["at"] if row else None

    def status(self, run_id: str) -> Status:
        """The run's present state."""
        with self._explained():
            row = self._one("SELECT status FROM statuses WHERE run_id = ? ORDER BY id DESC LIMIT 1", run_id)
        return Status(row["status"]) if row else Status.RUNNING

    def runs(self) -> tuple[RunSummary, ...]:
        """All runs, the newest first."""
        with self._explained():
            found = self._db.execute(
                "SELECT r.run_id, r.created, r.kind, r.cloud, r.strategy,"
                " (SELECT status FROM statuses s WHERE s.run_id = r.run_id ORDER BY id DESC LIMIT 1) AS status,"
                " (SELECT count(*) FROM trials_ended e WHERE e.run_id = r.run_id)"
                " + (SELECT count(*) FROM epochs_ended e WHERE e.run_id = r.run_id) AS trials,"
                " (SELECT total(usd_micros) FROM trials_ended e WHERE e.run_id = r.run_id)"
                " + (SELECT total(usd_micros) FROM finals_ended f WHERE f.run_id = r.run_id)"
                " + (SELECT total(usd_micros) FROM epochs_ended e WHERE e.run_id = r.run_id) AS spent"
                " FROM runs r ORDER BY r.created DESC, r.rowid DESC"
            ).fetchall()
        return tuple(
            RunSummary(
                run_id=row["run_id"],
                created=row["created"],
                cloud=row["cloud"],
                strategy=row["strategy"],
                status=Status(row["status"]),
                trials=row["trials"],
                spent=Usd(int(row["spent"])),
                kind=row["kind"],
            )
            for row in found
        )

    # ---- for the other files of this room

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing."""
        with self._transaction() as db:
            yield db

    def select(self, query: str, *values: object) -> list[sqlite3.Row]:
        """Rows by a query of our own."""
        with self._explained():
            return self._db.execute(query, values).fetchall()

    def run_row(self, run_id: str) -> sqlite3.Row:
        """A run by its name, or the beginning of one that is no other's. Raises BadInput."""
        return self._run_row(run_id)

    def note_status(self, db: sqlite3.Connection, run_id: str, status: Status) -> None:
        """A change of state inside a transaction."""
        self._set_status(db, run_id, status)

    def kind(self, run_id: str) -> str:
        """train, serve or serverless."""
        kind: str = self._run_row(run_id)["kind"]
        return kind

    @contextmanager
    def lock(self, run_id: str) -> Iterator[None]:
        """Hold a run for this process. Raises RunBusy; the system drops the lock when the process dies."""
        if self.folder is None:
            yield
            return
        with self._explained():
            (self.folder / "locks").mkdir(exist_ok=True)
            lock = FileLock(self.folder / "locks" / f"{run_id}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout as error:
                raise RunBusy(
                    f"run {run_id} is being worked on by another mlcd process; wait for it or end it"
                ) from error
        try:
            yield
        finally:
            lock.release()

    def is_live(self, run_id: str) -> bool:
        """Whether a process works on the run now; one that says `running` and is not was killed."""
        if self.folder is None or not (self.folder / "locks" / f"{run_id}.lock").exists():
            return False
        try:
            with self.lock(run_id):
                return False
        except RunBusy:
            return True

    # ---- inside

    def _prepare(self) -> None:
        if self.path:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA foreign_keys = ON")
        version = self._version()
        if version == 0:
            with self._transaction() as db:
                if self._version() == 0:  # another process may have been quicker
                    for statement in files("mlcd.store").joinpath("schema.sql").read_text().split(";\n"):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {SCHEMA}")
        elif version in _CHANGES:
            with self._transaction() as db:
                if self._version() == version:
                    for statement in _CHANGES[version]:
                        db.execute(statement)
                    for statement in added_columns(db):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {SCHEMA}")
        elif version < SCHEMA:
            raise StoreError(
                f"{self.path} was written by a version before the first release (schema {version}, this one needs"
                f" {SCHEMA}): move the file away to start anew, or set MLCD_HOME to another folder"
            )
        elif version > SCHEMA:
            raise StoreError(
                f"{self.path} was written by a newer mlcd (schema {version}, this one knows {SCHEMA}): upgrade mlcd, or"
                " set MLCD_HOME to another folder"
            )
        for table in TABLES:
            self._db.execute(table)

    def _outputs(self, run_id: str) -> str:
        """Where a run's outputs lie, once it has some."""
        path = self.folder / "work" / run_id / "outputs" if self.folder else None
        return str(path) if path is not None and path.is_dir() else ""

    def _version(self) -> int:
        with closing(self._db.execute("PRAGMA user_version")) as cursor:
            return int(cursor.fetchone()[0])

    def _run_row(self, run_id: str) -> sqlite3.Row:
        with self._explained():
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
            raise BadInput(f"{run_id!r} begins the names of {len(matches)} runs: {shown}{more}")
        near = nearest(run_id, names)
        hint = f"; did you mean {near!r}?" if near else "; `mlcd runs` lists them"
        raise BadInput(f"there is no run {run_id!r}{hint}")

    def _one(self, query: str, *values: object) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._db.execute(query, values).fetchone()
        return row

    @staticmethod
    def _set_status(db: sqlite3.Connection, run_id: str, status: Status) -> None:
        db.execute("INSERT INTO statuses (run_id, status, at) VALUES (?,?,?)", (run_id, status.value, time.time()))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained():
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's and the system's errors as one message that says what to do."""
        where = self.path or "the store in memory"
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{where}: {_advice(str(error))}") from error
        except OSError as error:
            raise StoreError(
                f"{where}: {error.strerror or error}; set MLCD_HOME to a folder that can be written"
            ) from error


def simulated_elapsed(rows: tuple[TrialRow, ...]) -> float:
    """Seconds from the first start to the last end on a simulated clock: rounds follow each other."""
    return max((row.started_seconds + row.trial.seconds for row in rows), default=0.0)


def _started(row: sqlite3.Row) -> StartedTrial:
    return StartedTrial(
        number=row["number"],
        round=row["round"],
        reason=row["reason"],
        usd_per_hour=Usd(row["usd_per_hour_micros"]),
        authorisation=_leave(row),
        started_seconds=row["started_seconds"],
        started_at=row["started_at"],
    )


def _leave(row: sqlite3.Row) -> Authorisation:
    return Authorisation(
        config=codec.config_from_json(json.loads(row["config"])),
        attempt=row["attempt"],
        usd=Usd(row["authorised_usd_micros"]),
        seconds=row["authorised_seconds"],
    )


def _final(row: sqlite3.Row) -> FinalRun:
    return FinalRun(
        config=codec.config_from_json(json.loads(row["config"])),
        seconds=row["seconds"],
        usd=Usd(row["usd_micros"]),
        ending=Ending(row["kind"]),
        reached_samples=row["reached_samples"],
        samples_per_second=row["samples_per_second"],
        message=row["message"],
        load=codec.load_from_json(json.loads(row["load"])) if row["load"] else None,
    )


def _ended(run: FinalRun) -> tuple[str, float, int, float, float | None, str, str | None]:
    return (
        run.ending.value,
        run.seconds,
        run.usd.micros,
        run.reached_samples,
        run.samples_per_second,
        run.message,
        codec.dump(codec.load_to_json(run.load)) if run.load else None,
    )


def _advice(message: str) -> str:
    if "full" in message:
        return "the disk is full: free some space, then `mlcd resume` the run; all that was paid before is stored"
    if "readonly" in message or "unable to open" in message:
        return "cannot be written: set MLCD_HOME to a folder that can be"
    if "not a database" in message or "malformed" in message:
        return "is damaged or not a database: restore it from a copy, or move it away to start anew"
    if "locked" in message:
        return "another mlcd process has held it for too long: end that process and try again"
    return message
