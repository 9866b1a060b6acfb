"""Loops and their runs: one row per slot."""

from __future__ import annotations

from standfast.db.migrations.migration import Migration

MIGRATION = Migration(
    version=5,
    name="loops",
    text="""
CREATE TABLE loop (
    id             TEXT NOT NULL PRIMARY KEY,
    scope          TEXT NOT NULL,
    name           TEXT NOT NULL,
    kind           TEXT NOT NULL CHECK (kind IN ('cron', 'every', 'once')),
    schedule       TEXT NOT NULL,
    zone           TEXT NOT NULL,
    command        TEXT NOT NULL,
    cwd            TEXT NOT NULL,
    environment    TEXT,
    catch_up       TEXT NOT NULL CHECK (catch_up IN ('latest', 'all', 'none')),
    catch_up_max   BIGINT NOT NULL,
    overlap        TEXT NOT NULL CHECK (overlap IN ('skip', 'queue')),
    timeout_us     BIGINT,
    retries_max    BIGINT NOT NULL,
    backoff_us     BIGINT NOT NULL,
    failures_max   BIGINT NOT NULL,
    failures       BIGINT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('active', 'paused', 'finished', 'removed')),
    reason         TEXT,
    spec_hash      TEXT NOT NULL,
    anchor_us      BIGINT NOT NULL,
    next_slot_us   BIGINT,
    last_slot_us   BIGINT,
    actor          TEXT NOT NULL,
    created_us     BIGINT NOT NULL,
    updated_us     BIGINT NOT NULL,
    CHECK (state IN ('active', 'paused') OR next_slot_us IS NULL)
) STRICT;
CREATE UNIQUE INDEX loop_by_name ON loop (scope, name) WHERE state <> 'removed';
CREATE INDEX loop_due ON loop (next_slot_us) WHERE next_slot_us IS NOT NULL;

-- One row per slot, whoever fires it; what is older than a thousand slots of a gap is one row for its range.
CREATE TABLE run (
    seq             BIGKEY,
    id              TEXT NOT NULL UNIQUE,
    loop_id         TEXT NOT NULL,
    scope           TEXT NOT NULL,
    slot_us         BIGINT NOT NULL,
    until_slot_us   BIGINT,
    slots           BIGINT NOT NULL,
    source          TEXT NOT NULL CHECK (source IN ('slot', 'asked')),
    state           TEXT NOT NULL CHECK
        (state IN ('queued', 'running', 'done', 'failed', 'timed_out', 'skipped', 'missed', 'abandoned', 'cancelled')),
    reason          TEXT,
    attempt         BIGINT NOT NULL,
    ready_us        BIGINT NOT NULL,
    exit_code       BIGINT,
    duration_us     BIGINT,
    host            TEXT,
    pid             BIGINT,
    process         TEXT,
    stdout_id       TEXT,
    stderr_id       TEXT,
    cancel_reason   TEXT,
    holder          TEXT,
    actor           TEXT,
    lease_until_us  BIGINT,
    lease_boot      TEXT,
    lease_mono_us   BIGINT,
    lease_for_us    BIGINT,
    created_us      BIGINT NOT NULL,
    started_us      BIGINT,
    ended_us        BIGINT,
    UNIQUE (loop_id, slot_us),
    CHECK ((ended_us IS NULL) = (state IN ('queued', 'running'))),
    CHECK ((holder IS NULL) = (state <> 'running')),
    CHECK (slots >= 1 AND (slots = 1) = (until_slot_us IS NULL))
);
-- Two runs of one loop never go at the same time, whatever two claimers believe.
CREATE UNIQUE INDEX run_alone ON run (loop_id) WHERE state = 'running';
CREATE INDEX run_queued ON run (ready_us, seq) WHERE state = 'queued';
CREATE INDEX run_open ON run (loop_id, slot_us) WHERE state IN ('queued', 'running');
CREATE INDEX run_held ON run (holder) WHERE holder IS NOT NULL;
CREATE INDEX run_by_time ON run (scope, slot_us, id);
CREATE INDEX run_ranges ON run (until_slot_us) WHERE until_slot_us IS NOT NULL;
""",
)
