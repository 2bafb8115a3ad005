-- Append-only. A trial is two rows: leave to start it, written before it starts, and what came of it.
-- A started row without an ended row was in flight when the process died.

CREATE TABLE runs (
    run_id        TEXT PRIMARY KEY,
    created       TEXT NOT NULL,
    name          TEXT NOT NULL,
    kind          TEXT NOT NULL,             -- train, serve, serverless
    cloud         TEXT NOT NULL,
    simulated     INTEGER NOT NULL,
    strategy      TEXT NOT NULL,
    seed          INTEGER NOT NULL,
    parallel      INTEGER NOT NULL,
    version       TEXT NOT NULL,
    catalog_date  TEXT NOT NULL,
    problem       TEXT NOT NULL,             -- JSON, prices included
    spec          TEXT NOT NULL              -- the job as the user wrote it, JSON
) STRICT;

CREATE TABLE trials_started (
    run_id                 TEXT NOT NULL REFERENCES runs,
    number                 INTEGER NOT NULL,
    round                  INTEGER NOT NULL,
    config                 TEXT NOT NULL,    -- JSON
    attempt                INTEGER NOT NULL,
    reason                 TEXT NOT NULL,
    usd_per_hour_micros    INTEGER NOT NULL, -- the price used
    authorised_usd_micros  INTEGER NOT NULL,
    authorised_seconds     REAL NOT NULL,
    started_seconds        REAL NOT NULL,    -- after the run's first start
    started_at             REAL NOT NULL,    -- wall clock, seconds since 1970
    PRIMARY KEY (run_id, number)
) STRICT;

CREATE TABLE trials_ended (
    run_id      TEXT NOT NULL,
    number      INTEGER NOT NULL,
    kind        TEXT NOT NULL,               -- measured, or the kind of failure
    seconds     REAL NOT NULL,
    usd_micros  INTEGER NOT NULL,
    outcome     TEXT NOT NULL,               -- JSON
    PRIMARY KEY (run_id, number),
    FOREIGN KEY (run_id, number) REFERENCES trials_started
) STRICT;

CREATE TABLE verdicts (
    run_id          TEXT PRIMARY KEY REFERENCES runs,
    search_seconds  REAL NOT NULL,
    stopped         TEXT NOT NULL,
    choice          TEXT,                    -- JSON, NULL when nothing fits
    naive           TEXT NOT NULL,           -- JSON
    relaxations     TEXT NOT NULL            -- JSON
) STRICT;

CREATE TABLE finals_started (
    run_id                 TEXT NOT NULL REFERENCES runs,
    attempt                INTEGER NOT NULL, -- from 1; more than one where it was begun again
    config                 TEXT NOT NULL,    -- JSON
    authorised_usd_micros  INTEGER NOT NULL,
    authorised_seconds     REAL NOT NULL,
    started_at             REAL NOT NULL,    -- wall clock, seconds since 1970
    PRIMARY KEY (run_id, attempt)
) STRICT;

CREATE TABLE finals_ended (
    run_id      TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    kind        TEXT NOT NULL,               -- done, failed, stopped; begun again: lost, restarted, moved
    seconds     REAL NOT NULL,
    usd_micros  INTEGER NOT NULL,
    reached_samples     REAL NOT NULL DEFAULT 0,   -- how far the training was saved then
    samples_per_second  REAL,                      -- as measured while it trained
    message             TEXT NOT NULL DEFAULT '',
    load                TEXT,                      -- JSON: what the verification of a served model saw
    PRIMARY KEY (run_id, attempt),
    FOREIGN KEY (run_id, attempt) REFERENCES finals_started
) STRICT;

CREATE TABLE statuses (
    id      INTEGER PRIMARY KEY,
    run_id  TEXT NOT NULL REFERENCES runs,
    status  TEXT NOT NULL,
    at      REAL NOT NULL                    -- wall clock, seconds since 1970
) STRICT;

CREATE INDEX statuses_by_run ON statuses (run_id, id);
