"""Trainings on functions in the same file: every epoch written before it starts and after it ends, with its calls."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from mlcd.store import codec
from mlcd.store.epoch_codec import (
    instance_from_json,
    instance_to_json,
    problem_from_json,
    problem_to_json,
)
from mlcd.store.store import Store
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet
from mlcd.trial.epoch_json import outcome_from_json, outcome_to_json
from mlcd.trial.outcome import Status
from mlcd.trial.serverless import EpochRow, PlainInstance, ServerlessRecord
from mlcd.units import Usd

KIND = "serverless"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedEpoch:
    """An epoch that was authorised; in flight until it has ended."""

    go: int
    number: int
    fleet: Fleet
    authorised_usd: Usd
    authorised_seconds: float
    started_at: float


class EpochBook:
    """The epochs of a store's runs; each call is one transaction. Raises what Store raises."""

    def __init__(self, store: Store) -> None:
        self.store = store

    # ---- writing

    def add_run(self, record: ServerlessRecord, *, spec: dict[str, Any]) -> None:
        """A new run, before its first epoch."""
        written = {**spec, "sync": record.sync, "model": record.model}
        values = (
            record.run_id, record.created, record.problem.name, KIND, record.cloud, int(record.simulated),
            record.strategy, record.seed, 1, record.version, record.problem.prices.date.isoformat(),
            codec.dump(problem_to_json(record.problem)), codec.dump(written),
        )  # fmt: skip
        with self.store.transaction() as db:
            db.execute(f"INSERT INTO runs VALUES ({','.join('?' * len(values))})", values)  # noqa: S608 - only marks
            self.store.note_status(db, record.run_id, record.status)

    def start(self, run_id: str, epoch: StartedEpoch) -> None:
        """Leave to run an epoch, written before anything is spent on it."""
        values = (
            run_id, epoch.go, epoch.number, epoch.fleet.functions, epoch.fleet.memory_mb, epoch.authorised_usd.micros,
            epoch.authorised_seconds, epoch.started_at, epoch.fleet.share,
        )  # fmt: skip
        with self.store.transaction() as db:
            db.execute("INSERT INTO epochs_started VALUES (?,?,?,?,?,?,?,?,?)", values)

    def end(self, run_id: str, go: int, outcome: Epoch | FailedEpoch, calls: Sequence[FunctionCall] = ()) -> None:
        """What came of it, with its calls; from here on it is never run or paid again."""
        data = outcome_to_json(outcome)
        with self.store.transaction() as db:
            db.execute(
                "INSERT INTO epochs_ended VALUES (?,?,?,?,?,?)",
                (run_id, go, data["kind"], outcome.seconds, outcome.usd.micros, codec.dump(data)),
            )
            db.executemany(
                "INSERT INTO calls VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                [(run_id, go, *_call_values(call)) for call in calls],
            )

    def end_run(
        self,
        run_id: str,
        status: Status,
        *,
        stopped: str,
        smallest_budget: Usd | None,
        instances: Sequence[PlainInstance],
    ) -> None:
        """The training's end. A second end for a run is refused by the table."""
        smallest = None if smallest_budget is None else smallest_budget.micros
        compared = codec.dump([instance_to_json(instance) for instance in instances])
        with self.store.transaction() as db:
            db.execute("INSERT INTO trainings_ended VALUES (?,?,?,?)", (run_id, stopped, smallest, compared))
            self.store.note_status(db, run_id, status)

    # ---- reading

    def record(self, run_id: str) -> ServerlessRecord:
        """Everything known of a run. Raises BadInput with the nearest name when there is none."""
        run = self.store.run_row(run_id)
        name = run["run_id"]
        end = self._rows("SELECT * FROM trainings_ended WHERE run_id = ?", name)
        spec = json.loads(run["spec"])
        rows = self.rows(name)
        return ServerlessRecord(
            run_id=name,
            created=run["created"],
            cloud=run["cloud"],
            simulated=bool(run["simulated"]),
            strategy=run["strategy"],
            seed=run["seed"],
            version=run["version"],
            sync=spec["sync"],
            model=spec["model"],
            problem=problem_from_json(json.loads(run["problem"])),
            status=self.store.status(name),
            rows=rows,
            stopped=end[0]["stopped"] if end else "",
            smallest_budget=Usd(end[0]["smallest_micros"]) if end and end[0]["smallest_micros"] is not None else None,
            instances=tuple(map(instance_from_json, json.loads(end[0]["instances"]))) if end else (),
            elapsed_seconds=self._elapsed(name, rows, simulated=bool(run["simulated"])),
        )

    def rows(self, run_id: str) -> tuple[EpochRow, ...]:
        """Every go that ended, in order."""
        found = self._rows(
            "SELECT s.*, e.outcome FROM epochs_started s JOIN epochs_ended e USING (run_id, go)"
            " WHERE run_id = ? ORDER BY go",
            run_id,
        )
        return tuple(
            EpochRow(
                go=row["go"],
                authorised_usd=Usd(row["authorised_usd_micros"]),
                authorised_seconds=row["authorised_seconds"],
                outcome=outcome_from_json(json.loads(row["outcome"])),
            )
            for row in found
        )

    def in_flight(self, run_id: str) -> StartedEpoch | None:
        """The epoch that was started and has no end."""
        found = self._rows(
            "SELECT s.* FROM epochs_started s LEFT JOIN epochs_ended e USING (run_id, go)"
            " WHERE run_id = ? AND e.go IS NULL ORDER BY go",
            run_id,
        )
        return _started(found[0]) if found else None

    def calls(self, run_id: str) -> tuple[FunctionCall, ...]:
        """Every call with its price, in order."""
        found = self._rows(
            "SELECT c.*, s.number FROM calls c JOIN epochs_started s USING (run_id, go)"
            " WHERE run_id = ? ORDER BY go, shard, attempt",
            run_id,
        )
        return tuple(_call(row) for row in found)

    def first_start(self, run_id: str) -> float | None:
        """Wall clock of the first epoch's start: where a real deadline begins."""
        row = self._rows("SELECT min(started_at) AS at FROM epochs_started WHERE run_id = ?", run_id)[0]
        at: float | None = row["at"]
        return at

    def _elapsed(self, run_id: str, rows: tuple[EpochRow, ...], *, simulated: bool) -> float:
        trained = sum(row.outcome.seconds for row in rows)
        if simulated or not rows:
            return trained
        last = self._rows(
            "SELECT s.started_at + e.seconds AS at FROM epochs_started s JOIN epochs_ended e USING (run_id, go)"
            " WHERE run_id = ? ORDER BY go DESC LIMIT 1",
            run_id,
        )[0]["at"]
        return max(trained, float(last) - (self.first_start(run_id) or float(last)))

    def _rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        return self.store.select(query, *values)


def _started(row: sqlite3.Row) -> StartedEpoch:
    return StartedEpoch(
        go=row["go"],
        number=row["number"],
        fleet=Fleet(row["functions"], row["memory_mb"], row["share"]),
        authorised_usd=Usd(row["authorised_usd_micros"]),
        authorised_seconds=row["authorised_seconds"],
        started_at=row["started_at"],
    )


def _call_values(call: FunctionCall) -> tuple[object, ...]:
    return (
        call.shard, call.attempt, call.memory_mb, call.seconds, str(call.usd), call.fetch_seconds,
        call.compute_seconds, call.update_seconds, call.waited_seconds, call.puts, call.gets, int(call.cold),
        call.ending, call.peak_mb, call.message,
    )  # fmt: skip


def _call(row: sqlite3.Row) -> FunctionCall:
    return FunctionCall(
        epoch=row["number"],
        shard=row["shard"],
        attempt=row["attempt"],
        memory_mb=row["memory_mb"],
        seconds=row["seconds"],
        usd=Decimal(row["usd"]),
        fetch_seconds=row["fetch_seconds"],
        compute_seconds=row["compute_seconds"],
        update_seconds=row["update_seconds"],
        waited_seconds=row["waited_seconds"],
        puts=row["puts"],
        gets=row["gets"],
        cold=bool(row["cold"]),
        ending=row["ending"],
        peak_mb=row["peak_mb"],
        message=row["message"],
    )
