"""The ground: what the store is, its journal, and who holds what."""

from __future__ import annotations

from standfast.db.migrations.migration import Migration

MIGRATION = Migration(
    version=1,
    name="foundation",
    text="""
-- Facts about the store itself: store_id, min_writer, settled_seq, cluster.
CREATE TABLE meta (
    key    TEXT NOT NULL PRIMARY KEY,
    value  TEXT NOT NULL
) STRICT;

CREATE TABLE migration (
    version     BIGINT NOT NULL PRIMARY KEY,
    name        TEXT NOT NULL,
    checksum    TEXT NOT NULL,
    applied_us  BIGINT NOT NULL
) STRICT;

-- The journal. `time_us` is when it was recorded, `occurred_us` when it happened. `stream` is
-- null for what a verb wrote. Not STRICT: adding a column to a strict table reads all of it.
CREATE TABLE event (
    seq          BIGKEY,
    xid          xid8 NOT NULL DEFAULT pg_current_xact_id(), -- [postgres]
    time_us      BIGINT NOT NULL,
    occurred_us  BIGINT NOT NULL,
    scope        TEXT NOT NULL,
    actor        TEXT NOT NULL,
    holder       TEXT NOT NULL,
    source       TEXT NOT NULL CHECK (source IN ('seen', 'said')),
    type         TEXT NOT NULL,
    subject      TEXT NOT NULL,
    session_id   TEXT,
    state        TEXT,
    stream       TEXT,
    version      BIGINT,
    summary      TEXT,
    data         TEXT,
    CHECK ((stream IS NULL) = (version IS NULL))
);
CREATE INDEX event_by_time ON event (occurred_us);
CREATE INDEX event_by_subject ON event (subject, seq);
CREATE INDEX event_by_session ON event (session_id, seq) WHERE session_id IS NOT NULL;
CREATE UNIQUE INDEX event_by_stream ON event (scope, stream, version) WHERE stream IS NOT NULL;
CREATE INDEX event_by_xid ON event (xid, seq); -- [postgres]

-- Named locks. A row is never deleted: the fence must only grow.
CREATE TABLE lease (
    scope           TEXT NOT NULL,
    name            TEXT NOT NULL,
    holder          TEXT,
    actor           TEXT,
    lease_until_us  BIGINT,
    lease_boot      TEXT,
    lease_mono_us   BIGINT,
    lease_for_us    BIGINT,
    fence           BIGINT NOT NULL,
    acquired_us     BIGINT,
    note            TEXT,
    PRIMARY KEY (scope, name)
) STRICT;
CREATE INDEX lease_by_holder ON lease (holder) WHERE holder IS NOT NULL;
""",
)
