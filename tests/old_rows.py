"""Homes as version 0.1 wrote them, row by row, for the tests of the migration: runs of each kind, in flight too."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

TABLES = """
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY, created TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, cloud TEXT NOT NULL,
    simulated INTEGER NOT NULL, strategy TEXT NOT NULL, seed INTEGER NOT NULL, parallel INTEGER NOT NULL,
    version TEXT NOT NULL, catalog_date TEXT NOT NULL, problem TEXT NOT NULL, spec TEXT NOT NULL
) STRICT;
CREATE TABLE trials_started (
    run_id TEXT NOT NULL REFERENCES runs, number INTEGER NOT NULL, round INTEGER NOT NULL, config TEXT NOT NULL,
    attempt INTEGER NOT NULL, reason TEXT NOT NULL, usd_per_hour_micros INTEGER NOT NULL,
    authorised_usd_micros INTEGER NOT NULL, authorised_seconds REAL NOT NULL, started_seconds REAL NOT NULL,
    started_at REAL NOT NULL, PRIMARY KEY (run_id, number)
) STRICT;
CREATE TABLE trials_ended (
    run_id TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, seconds REAL NOT NULL,
    usd_micros INTEGER NOT NULL, outcome TEXT NOT NULL, PRIMARY KEY (run_id, number),
    FOREIGN KEY (run_id, number) REFERENCES trials_started
) STRICT;
CREATE TABLE verdicts (
    run_id TEXT PRIMARY KEY REFERENCES runs, search_seconds REAL NOT NULL, stopped TEXT NOT NULL, choice TEXT,
    naive TEXT NOT NULL, relaxations TEXT NOT NULL
) STRICT;
CREATE TABLE finals_started (
    run_id TEXT NOT NULL REFERENCES runs, attempt INTEGER NOT NULL, config TEXT NOT NULL,
    authorised_usd_micros INTEGER NOT NULL, authorised_seconds REAL NOT NULL, started_at REAL NOT NULL,
    PRIMARY KEY (run_id, attempt)
) STRICT;
CREATE TABLE finals_ended (
    run_id TEXT NOT NULL, attempt INTEGER NOT NULL, kind TEXT NOT NULL, seconds REAL NOT NULL,
    usd_micros INTEGER NOT NULL, reached_samples REAL NOT NULL DEFAULT 0, samples_per_second REAL,
    message TEXT NOT NULL DEFAULT '', load TEXT, PRIMARY KEY (run_id, attempt),
    FOREIGN KEY (run_id, attempt) REFERENCES finals_started
) STRICT;
CREATE TABLE statuses (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs, status TEXT NOT NULL, at REAL NOT NULL
) STRICT;
CREATE INDEX statuses_by_run ON statuses (run_id, id);
"""
EPOCH_TABLES = """
CREATE TABLE epochs_started (
    run_id TEXT NOT NULL REFERENCES runs, go INTEGER NOT NULL, number INTEGER NOT NULL, functions INTEGER NOT NULL,
    memory_mb INTEGER NOT NULL, authorised_usd_micros INTEGER NOT NULL, authorised_seconds REAL NOT NULL,
    started_at REAL NOT NULL, share REAL NOT NULL DEFAULT 1.0, PRIMARY KEY (run_id, go)
) STRICT;
CREATE TABLE epochs_ended (
    run_id TEXT NOT NULL, go INTEGER NOT NULL, kind TEXT NOT NULL, seconds REAL NOT NULL, usd_micros INTEGER NOT NULL,
    outcome TEXT NOT NULL, PRIMARY KEY (run_id, go), FOREIGN KEY (run_id, go) REFERENCES epochs_started
) STRICT;
CREATE TABLE calls (
    run_id TEXT NOT NULL, go INTEGER NOT NULL, shard INTEGER NOT NULL, attempt INTEGER NOT NULL,
    memory_mb INTEGER NOT NULL, seconds REAL NOT NULL, usd TEXT NOT NULL, fetch_seconds REAL NOT NULL,
    compute_seconds REAL NOT NULL, update_seconds REAL NOT NULL, waited_seconds REAL NOT NULL, puts INTEGER NOT NULL,
    gets INTEGER NOT NULL, cold INTEGER NOT NULL, ending TEXT NOT NULL, peak_mb REAL, message TEXT NOT NULL,
    PRIMARY KEY (run_id, go, shard, attempt), FOREIGN KEY (run_id, go) REFERENCES epochs_started
) STRICT;
CREATE TABLE trainings_ended (
    run_id TEXT PRIMARY KEY REFERENCES runs, stopped TEXT NOT NULL, smallest_micros INTEGER, instances TEXT NOT NULL
) STRICT;
"""

SMALL: dict[str, Any] = {"instance": "c5.small", "nodes": 1}
LARGE: dict[str, Any] = {"instance": "c5.small", "nodes": 4}
PROBLEM: dict[str, Any] = {
    "name": "tiny",
    "work_samples": 2e6,
    "goal": {"minimize": "time", "deadline_seconds": None, "budget_micros": 9_000_000, "slo": None, "rate": None},
    "knobs": [
        {
            "name": "instance",
            "values": ["c5.small"],
            "features": [[1.0, 2.0]],
            "log2_sizes": [4.0],
            "kinds": ["cpu"],
        },
        {"name": "nodes", "values": [1, 4], "features": None, "log2_sizes": None, "kinds": None},
    ],
    "configs": [["c5.small", 1], ["c5.small", 4]],
    "usd_per_hour_micros": [1_000_000, 4_000_000],
    "trial": {
        "seconds": 300.0,
        "extra_seconds_per_3_nodes": 60.0,
        "extension": 0.5,
        "watchdog_seconds": 120.0,
        "precision": 0.05,
        "retries": 2,
    },
    "max_trials": 12,
    "noise": 0.01,
    "assurance": 0.99,
    "stretch": [1.0, 1.5],
    "blueprint": {
        "flops_per_sample": 1e9,
        "parameter_bytes": 1e8,
        "batch": 512,
        "machines": {"c5.small": [4e9, 1.25e9]},
    },
    "keeps_work": True,
    "work_known": True,
    "work_error": 0.25,
    "batching": None,
    "target": {"metric": "accuracy", "value": 0.9, "higher": True},
    "verify_seconds": None,
}
BATCHED = {
    **PROBLEM,
    "knobs": [*PROBLEM["knobs"], {"name": "batch", "values": [64], "features": None, "log2_sizes": None}],
    "configs": [["c5.small", 1, 64], ["c5.small", 4, 64]],
    "batching": {"reference": 64, "decay": None, "noise_scale": float("inf")},
}
"""Version 0.1 wrote `Infinity`."""
LOAD = {
    "p50_seconds": 0.01,
    "p95_seconds": 0.02,
    "p99_seconds": 0.03,
    "requests": 500,
    "errors": 1,
    "memory_gib": 1.5,
    "saturated": "",
}
SERVING = {
    "model": "model.onnx",
    "scenario": "poisson",
    "headroom": 0.1,
    "verify_seconds": 60.0,
    "resemblance": {"nearest": [["resnet50", 0.9], ["vgg", 0.5]], "covered": 0.8, "unseen": ["Foo"], "source": "h200"},
    "notes": ["no int8"],
}
FUNCTIONS: dict[str, Any] = {
    "name": "bow",
    "functions": [[1, 3], [7, 8], [10, 10]],
    "memory_mb": [1024, 2048],
    "samples": 1000,
    "batch": 10,
    "model_bytes": 4000,
    "target_loss": 0.3,
    "max_epochs": 20,
    "limit_seconds": 900.0,
    "puts_per_function": 1,
    "gets_per_function": 2,
    "repeat_share": 0.1,
    "longest_epoch_seconds": 21600.0,
    "goal": {"minimize": "cost", "deadline_seconds": 500.0, "budget_micros": None},
    "prices": {
        "name": "made-up",
        "usd_per_gb_second": "0.0000166667",
        "usd_per_request": "0.0000002",
        "granule_seconds": "0.001",
        "usd_per_put": "0.000005",
        "usd_per_get": "0.0000004",
        "memory_mb": [128, 10240, 1],
        "limit_seconds": 900.0,
        "concurrency": 1000,
        "date": "2026-08-01",
        "source": "a page",
        "tier_usd_per_second": {"1024": "0.00002", "2048": "0.00004"},
    },
}
SPEC = {"source": "name: x", "file": "job.yaml", "now": "2026-08-01T00:00:00"}


def plan(config: dict[str, Any]) -> dict[str, Any]:
    return {"config": config, "seconds": 9.5, "usd_micros": 7, "worst_seconds": 12.5, "worst_usd_micros": 8}


def measurement(config: dict[str, Any], schema: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": "measured",
        "config": config,
        "attempt": 1,
        "seconds": 600.0,
        "usd_micros": 166_667,
        "samples_per_second": 12.5,
        "relative_error": 0.01,
        "iterations": 50,
        "startup_seconds": 40.0,
        "extended": True,
    }
    if schema > 2:
        found |= {"reached_samples": 700.0, "utilisation": 0.5, "total_samples": None}
    if schema > 3:
        found |= {"load": LOAD, "noise_scale": 33.0, "learned": [[10.0, 0.5], [20.0, 0.75]]}
    return found


def failure(config: dict[str, Any], schema: int) -> dict[str, Any]:
    found = {
        "kind": "hang",
        "config": config,
        "attempt": 1,
        "seconds": 5.5,
        "usd_micros": 9,
        "message": "silent",
    }
    return found | ({"reached_samples": 1.0} if schema > 2 else {})


class OldHome:
    """Writes one database of schema `schema`."""

    def __init__(self, folder: Path, schema: int, *, epochs: bool = True) -> None:
        self.folder, self.schema = folder, schema
        folder.mkdir(parents=True, exist_ok=True)
        self.db = sqlite3.connect(folder / "mlcd.sqlite3", isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.executescript(TABLES)
        if schema < 4:
            self.db.execute("ALTER TABLE finals_ended DROP COLUMN load")
        if schema < 3:
            for column in ("reached_samples", "samples_per_second", "message"):
                self.db.execute(f"ALTER TABLE finals_ended DROP COLUMN {column}")
        if epochs:
            self.db.executescript(EPOCH_TABLES)
            if schema < 5:
                self.db.execute("ALTER TABLE epochs_started DROP COLUMN share")
        self.db.execute(f"PRAGMA user_version = {schema}")

    def insert(self, table: str, *values: object) -> None:
        self.db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

    def run(self, run_id: str, kind: str, problem: dict[str, Any], spec: dict[str, Any], *, simulated: bool) -> None:
        self.insert(
            "runs", run_id, "2026-08-01T10:00:00+00:00", problem["name"], kind, "sim/aws", int(simulated), "heterbo", 7,
            2, "0.1.0", "2026-08-01", json.dumps(problem), json.dumps({**SPEC, **spec}),
        )  # fmt: skip
        self.status(run_id, "running")

    def status(self, run_id: str, status: str) -> None:
        self.db.execute("INSERT INTO statuses (run_id, status, at) VALUES (?, ?, 5.0)", (run_id, status))

    def trial(self, run_id: str, number: int, config: dict[str, Any], outcome: dict[str, Any] | None) -> None:
        started = 600.0 * (number - 1)
        row = (json.dumps(config), 1, "because", 1_000_000, 2_000_000, 1020.0, started, 1000.0 + started)
        self.insert("trials_started", run_id, number, number, *row)
        if outcome is not None:
            values = (outcome["kind"], outcome["seconds"], outcome["usd_micros"], json.dumps(outcome))
            self.insert("trials_ended", run_id, number, *values)

    def final(self, run_id: str, attempt: int, config: dict[str, Any], *ended: object) -> None:
        """`ended`: kind, seconds, usd_micros, reached_samples, samples_per_second, message, load."""
        self.insert("finals_started", run_id, attempt, json.dumps(config), 3_000_000, 99.5, 3000.0 + attempt)
        if ended:
            self.insert("finals_ended", run_id, attempt, *ended[: {2: 3, 3: 6}.get(self.schema, 7)])

    def verdict(self, run_id: str) -> None:
        naive = [{"label": "one", "plan": plan(LARGE), "measured": False}]
        relaxed = [{"text": "more", "budget_micros": 5, "deadline_seconds": None}]
        values = (1234.5, "enough", json.dumps(plan(SMALL)), json.dumps(naive), json.dumps(relaxed))
        self.insert("verdicts", run_id, *values)

    def epoch(self, run_id: str, go: int, number: int, outcome: dict[str, Any] | None) -> None:
        share = (0.5,) if self.schema > 4 else ()
        self.insert("epochs_started", run_id, go, number, 3, 1024, 4_000_000, 77.5, 50.0 + 10 * go, *share)
        if outcome is not None:
            values = (outcome["kind"], outcome["seconds"], outcome["usd_micros"], json.dumps(outcome))
            self.insert("epochs_ended", run_id, go, *values)

    def fleet(self) -> dict[str, Any]:
        return {"functions": 3, "memory_mb": 1024} | ({"share": 0.5} if self.schema > 4 else {})

    # ---- whole runs

    def train(self, run_id: str, *, simulated: bool = True, problem: dict[str, Any] = PROBLEM) -> None:
        """A measured trial, a failed one, one in flight; a training that was lost, and one that is done."""
        self.run(run_id, "train", problem, {}, simulated=simulated)
        self.trial(run_id, 1, SMALL, measurement(SMALL, self.schema))
        self.trial(run_id, 2, LARGE, failure(LARGE, self.schema))
        self.trial(run_id, 3, LARGE, None)
        self.verdict(run_id)
        self.final(run_id, 1, LARGE, "lost", 1.5, 11, 70.0, 3.5, "mlcd died", None)
        self.final(run_id, 2, SMALL, "done", 2.5, 12, 90.0, None, "", None)
        self.status(run_id, "done")

    def serve(self, run_id: str) -> None:
        """A verification that moved, and one in flight."""
        self.run(run_id, "serve", {**PROBLEM, "verify_seconds": 90.0}, {"serving": SERVING}, simulated=False)
        self.trial(run_id, 1, SMALL, measurement(SMALL, self.schema))
        self.verdict(run_id)
        self.final(run_id, 1, SMALL, "moved", 1.5, 11, 0.0, 8.5, "too slow", json.dumps(LOAD))
        self.final(run_id, 2, LARGE)

    def serverless(self, run_id: str, *, simulated: bool = True, ended: bool = True) -> None:
        """An epoch that is done, one that failed, one in flight."""
        self.run(run_id, "serverless", FUNCTIONS, {"sync": "bsp", "model": "logistic"}, simulated=simulated)
        phase = {"mean_seconds": 1.0, "max_seconds": 2.0}
        shared = {"number": 1, **self.fleet(), "seconds": 9.5, "usd_micros": 70}
        done = {
            **shared, "kind": "done", "loss": 0.5, "fetch": phase, "compute": phase, "update": phase, "calls": 3,
            "failed": 1, "cold_starts": 2, "memory_share": None, "cpu_share": 0.25,
        }  # fmt: skip
        self.epoch(run_id, 1, 1, done)
        call = (1024, 8.5, "0.0000123456789", 1.0, 2.0, 3.0, 2.5, 1, 2, 1, "done", None, "ü")
        self.insert("calls", run_id, 1, 0, 1, *call)
        self.epoch(run_id, 2, 2, {**shared, "number": 2, "seconds": 4.5, "kind": "failed", "message": "broken"})
        self.epoch(run_id, 3, 2, None)
        if ended:
            instance = {"name": "c5", "usd_per_hour_micros": 5, "seconds": 1.5, "usd_micros": 7}
            self.insert("trainings_ended", run_id, "no budget", 8, json.dumps([instance]))
            self.status(run_id, "overran")

    def close(self) -> Path:
        with closing(self.db):
            return self.folder
