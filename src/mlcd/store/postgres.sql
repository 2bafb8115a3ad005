-- The tables of schema.sql for PostgreSQL, which `mlcd store init` makes in the schema `mlcd` of a database.
-- Columns and their meaning are those of schema.sql. `rowid`, which SQLite has by itself, is the order of runs and not
-- part of a row's digest. Ids are unique in a run: engines number their own rows without waiting for each other.
-- last_writes: the number of the last change that a connected process made. A COMMIT that got no answer is looked up there.

CREATE TABLE runs (
    run_id   TEXT PRIMARY KEY,
    header   TEXT NOT NULL,
    problem  TEXT NOT NULL,
    spec     TEXT NOT NULL,
    digest   TEXT,
    rowid    BIGINT GENERATED ALWAYS AS IDENTITY
);

CREATE TABLE steps_started (
    run_id                 TEXT NOT NULL REFERENCES runs,
    number                 BIGINT NOT NULL,
    round                  BIGINT NOT NULL,
    role                   TEXT NOT NULL,
    choice                 TEXT NOT NULL,
    attempt                BIGINT NOT NULL,
    reason                 TEXT NOT NULL,
    usd_per_hour_micros    BIGINT,
    authorised_usd_micros  BIGINT NOT NULL,
    authorised_seconds     DOUBLE PRECISION NOT NULL,
    started_seconds        DOUBLE PRECISION NOT NULL,
    started_at             DOUBLE PRECISION NOT NULL,
    started_moment         TEXT,
    watch                  TEXT,
    digest                 TEXT,
    PRIMARY KEY (run_id, number)
);

CREATE TABLE steps_ended (
    run_id      TEXT NOT NULL,
    number      BIGINT NOT NULL,
    kind        TEXT NOT NULL,
    seconds     DOUBLE PRECISION NOT NULL,
    usd_micros  BIGINT NOT NULL,
    outcome     TEXT NOT NULL,
    ended_seconds DOUBLE PRECISION,
    ended_moment  TEXT,
    digest      TEXT,
    PRIMARY KEY (run_id, number),
    FOREIGN KEY (run_id, number) REFERENCES steps_started
);

CREATE TABLE calls (
    run_id           TEXT NOT NULL,
    number           BIGINT NOT NULL,
    epoch            BIGINT NOT NULL,
    shard            BIGINT NOT NULL,
    attempt          BIGINT NOT NULL,
    memory_mb        BIGINT NOT NULL,
    seconds          DOUBLE PRECISION NOT NULL,
    usd              TEXT NOT NULL,
    fetch_seconds    DOUBLE PRECISION NOT NULL,
    compute_seconds  DOUBLE PRECISION NOT NULL,
    update_seconds   DOUBLE PRECISION NOT NULL,
    waited_seconds   DOUBLE PRECISION NOT NULL,
    puts             BIGINT NOT NULL,
    gets             BIGINT NOT NULL,
    cold             BIGINT NOT NULL,
    ending           TEXT NOT NULL,
    peak_mb          DOUBLE PRECISION,
    message          TEXT NOT NULL,
    digest           TEXT,
    PRIMARY KEY (run_id, number, shard, attempt),
    FOREIGN KEY (run_id, number) REFERENCES steps_started
);

CREATE TABLE verdicts (
    id       BIGINT NOT NULL,
    run_id   TEXT NOT NULL REFERENCES runs,
    verdict  TEXT NOT NULL,
    digest   TEXT,
    PRIMARY KEY (id, run_id)
);

CREATE INDEX verdicts_by_run ON verdicts (run_id, id);

CREATE TABLE findings (
    run_id    TEXT PRIMARY KEY REFERENCES runs,
    findings  TEXT NOT NULL,
    digest    TEXT
);

CREATE TABLE statuses (
    id      BIGINT NOT NULL,
    run_id  TEXT NOT NULL REFERENCES runs,
    status  TEXT NOT NULL,
    at      DOUBLE PRECISION NOT NULL,
    digest  TEXT,
    PRIMARY KEY (id, run_id)
);

CREATE INDEX statuses_by_run ON statuses (run_id, id);

CREATE TABLE row_counts (
    run_id     TEXT PRIMARY KEY REFERENCES runs,
    row_count  BIGINT NOT NULL,
    digest     TEXT,
    rowid    BIGINT GENERATED ALWAYS AS IDENTITY
);

CREATE INDEX runs_by_age ON runs (rowid);

CREATE TABLE store_schema (
    version  BIGINT NOT NULL
);

CREATE TABLE last_writes (
    session  TEXT PRIMARY KEY,
    number   BIGINT NOT NULL,
    at       TIMESTAMPTZ NOT NULL DEFAULT now()
);
