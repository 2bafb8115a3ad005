"""The tables of trainings on functions. They stand beside the others and are made where they are missing."""

import sqlite3

TABLES = (
    """CREATE TABLE IF NOT EXISTS epochs_started (
    run_id                 TEXT NOT NULL REFERENCES runs,
    go                     INTEGER NOT NULL, -- from 1: every start, those that failed too
    number                 INTEGER NOT NULL, -- of the epoch
    functions              INTEGER NOT NULL,
    memory_mb              INTEGER NOT NULL,
    authorised_usd_micros  INTEGER NOT NULL,
    authorised_seconds     REAL NOT NULL,
    started_at             REAL NOT NULL,    -- wall clock, seconds since 1970
    share                  REAL NOT NULL DEFAULT 1.0, -- of the epoch's samples
    PRIMARY KEY (run_id, go)
) STRICT""",
    """CREATE TABLE IF NOT EXISTS epochs_ended (
    run_id      TEXT NOT NULL,
    go          INTEGER NOT NULL,
    kind        TEXT NOT NULL,               -- done, failed
    seconds     REAL NOT NULL,
    usd_micros  INTEGER NOT NULL,
    outcome     TEXT NOT NULL,               -- JSON
    PRIMARY KEY (run_id, go),
    FOREIGN KEY (run_id, go) REFERENCES epochs_started
) STRICT""",
    """CREATE TABLE IF NOT EXISTS calls (
    run_id           TEXT NOT NULL,
    go               INTEGER NOT NULL,
    shard            INTEGER NOT NULL,
    attempt          INTEGER NOT NULL,
    memory_mb        INTEGER NOT NULL,
    seconds          REAL NOT NULL,
    usd              TEXT NOT NULL,          -- exact, by the prices in runs.problem
    fetch_seconds    REAL NOT NULL,
    compute_seconds  REAL NOT NULL,
    update_seconds   REAL NOT NULL,
    waited_seconds   REAL NOT NULL,
    puts             INTEGER NOT NULL,
    gets             INTEGER NOT NULL,
    cold             INTEGER NOT NULL,
    ending           TEXT NOT NULL,          -- done, handed-over, failed, overtaken
    peak_mb          REAL,
    message          TEXT NOT NULL,
    PRIMARY KEY (run_id, go, shard, attempt),
    FOREIGN KEY (run_id, go) REFERENCES epochs_started
) STRICT""",
    """CREATE TABLE IF NOT EXISTS trainings_ended (
    run_id           TEXT PRIMARY KEY REFERENCES runs,
    stopped          TEXT NOT NULL,
    smallest_micros  INTEGER,                -- the budget it would have needed, where it can tell
    instances        TEXT NOT NULL           -- JSON
) STRICT""",
)


def added_columns(db: sqlite3.Connection) -> tuple[str, ...]:
    """What brings older tables up to these, where there are any."""
    columns = {row[1] for row in db.execute("PRAGMA table_info(epochs_started)").fetchall()}
    if not columns or "share" in columns:
        return ()
    return ("ALTER TABLE epochs_started ADD COLUMN share REAL NOT NULL DEFAULT 1.0",)
