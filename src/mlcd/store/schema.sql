-- Append-only, but for row_counts. A step is two rows: its authorisation, written before it starts, and its outcome.
-- A started row without an ended row was in flight when the process died.
-- JSON is in the form that mlcd.codec describes; money is in micro-dollars.
-- Every row has a digest of its other columns (rows.py): NULL, or one that does not fit, means damage.

CREATE TABLE runs (
    run_id   TEXT PRIMARY KEY,
    header   TEXT NOT NULL,                  -- JSON: Header
    problem  TEXT NOT NULL,                  -- JSON: Problem or FunctionProblem, prices included
    spec     TEXT NOT NULL,                  -- JSON: the job as the user wrote it, without the values of its envs
    digest   TEXT
) STRICT;

CREATE TABLE steps_started (
    run_id                 TEXT NOT NULL REFERENCES runs,
    number                 INTEGER NOT NULL,
    round                  INTEGER NOT NULL,
    role                   TEXT NOT NULL,    -- trial, verification, training, epoch
    choice                 TEXT NOT NULL,    -- JSON: Config or Fleet
    attempt                INTEGER NOT NULL,
    reason                 TEXT NOT NULL,
    usd_per_hour_micros    INTEGER,          -- the price used; NULL for an epoch
    authorised_usd_micros  INTEGER NOT NULL,
    authorised_seconds     REAL NOT NULL,    -- Infinity where nothing limits it
    started_seconds        REAL NOT NULL,    -- after the run's first start
    started_at             REAL NOT NULL,    -- wall clock, seconds since 1970
    started_moment         TEXT,             -- JSON: Moment, on all clocks; NULL in earlier versions
    watch                  TEXT,             -- JSON: Watch of a training that is not certain to fit; else NULL
    digest                 TEXT,
    PRIMARY KEY (run_id, number)
) STRICT;

CREATE TABLE steps_ended (
    run_id      TEXT NOT NULL,
    number      INTEGER NOT NULL,
    kind        TEXT NOT NULL,               -- measured or the kind of failure; how an attempt ended; done, failed
    seconds     REAL NOT NULL,
    usd_micros  INTEGER NOT NULL,
    outcome     TEXT NOT NULL,               -- JSON: Outcome
    ended_seconds REAL,                      -- after the run's first start; NULL in earlier versions
    ended_moment  TEXT,                      -- JSON: Moment, when this row was written; NULL in earlier versions
    digest      TEXT,
    PRIMARY KEY (run_id, number),
    FOREIGN KEY (run_id, number) REFERENCES steps_started
) STRICT;

CREATE TABLE calls (                         -- of functions; the columns are the fields of FunctionCall
    run_id           TEXT NOT NULL,
    number           INTEGER NOT NULL,       -- of the step
    epoch            INTEGER NOT NULL,
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
    digest           TEXT,
    PRIMARY KEY (run_id, number, shard, attempt),
    FOREIGN KEY (run_id, number) REFERENCES steps_started
) STRICT;

CREATE TABLE verdicts (                      -- the last one of a run counts
    id       INTEGER PRIMARY KEY,
    run_id   TEXT NOT NULL REFERENCES runs,
    verdict  TEXT NOT NULL,                  -- JSON: Verdict
    digest   TEXT
) STRICT;

CREATE INDEX verdicts_by_run ON verdicts (run_id, id);

CREATE TABLE findings (
    run_id    TEXT PRIMARY KEY REFERENCES runs,
    findings  TEXT NOT NULL,                 -- JSON: Findings
    digest    TEXT
) STRICT;

CREATE TABLE statuses (                      -- the last one of a run counts
    id      INTEGER PRIMARY KEY,
    run_id  TEXT NOT NULL REFERENCES runs,
    status  TEXT NOT NULL,
    at      REAL NOT NULL,                   -- wall clock, seconds since 1970
    digest  TEXT
) STRICT;

CREATE INDEX statuses_by_run ON statuses (run_id, id);

CREATE TABLE row_counts (                    -- the only rows that change
    run_id     TEXT PRIMARY KEY REFERENCES runs,
    row_count  INTEGER NOT NULL,             -- of the run in all other tables: with fewer, some were lost
    digest     TEXT
) STRICT;
