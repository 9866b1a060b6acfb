"""Threads of graphs: their checkpoints, the values these speak of, the writes of tasks; and long-term items."""

from __future__ import annotations

from standfast.db.migrations.migration import Migration

MIGRATION = Migration(
    version=8,
    name="threads",
    text="""
-- A deleted thread stays as a tombstone: what comes late finds it. `life` counts how often it began.
CREATE TABLE thread (
    seq          BIGKEY,
    id           TEXT NOT NULL UNIQUE,
    scope        TEXT NOT NULL,
    key          TEXT NOT NULL,
    life         BIGINT NOT NULL,
    created_us   BIGINT NOT NULL,
    updated_us   BIGINT NOT NULL,
    deleted_us   BIGINT,
    UNIQUE (scope, key)
) STRICT;
CREATE INDEX thread_by_update ON thread (scope, updated_us);

-- The header of a checkpoint is small: `parts` says which value each channel has.
CREATE TABLE thread_checkpoint (
    seq            BIGKEY,
    thread_seq     BIGINT NOT NULL,
    namespace      TEXT NOT NULL, -- [sqlite]
    checkpoint_id  TEXT NOT NULL, -- [sqlite]
    namespace      TEXT COLLATE "C" NOT NULL, -- [postgres]
    checkpoint_id  TEXT COLLATE "C" NOT NULL, -- [postgres]
    parent_id      TEXT,
    run_id         TEXT,
    header         BYTES NOT NULL,
    parts          TEXT NOT NULL,
    metadata       BYTES NOT NULL,
    created_us     BIGINT NOT NULL,
    UNIQUE (thread_seq, namespace, checkpoint_id)
) STRICT;
CREATE INDEX thread_checkpoint_by_run ON thread_checkpoint (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX thread_checkpoint_by_id ON thread_checkpoint (checkpoint_id, seq);

-- A value is the rows of its segment up to its own: the first whole, each other what it changed in the
-- one before. Segments are never used twice, so that (segment, n) names the same bytes for ever.
CREATE TABLE thread_value (
    seq         BIGKEY,
    thread_seq  BIGINT NOT NULL,
    segment     TEXT NOT NULL,
    n           BIGINT NOT NULL,
    type        TEXT NOT NULL,
    data        BYTES NOT NULL,
    UNIQUE (thread_seq, segment, n)
) STRICT;

-- No reference to the checkpoint: what a task wrote may be here before it.
CREATE TABLE thread_write (
    seq            BIGKEY,
    thread_seq     BIGINT NOT NULL,
    namespace      TEXT NOT NULL, -- [sqlite]
    checkpoint_id  TEXT NOT NULL, -- [sqlite]
    task_id        TEXT NOT NULL, -- [sqlite]
    task_path      TEXT NOT NULL, -- [sqlite]
    namespace      TEXT COLLATE "C" NOT NULL, -- [postgres]
    checkpoint_id  TEXT COLLATE "C" NOT NULL, -- [postgres]
    task_id        TEXT COLLATE "C" NOT NULL, -- [postgres]
    task_path      TEXT COLLATE "C" NOT NULL, -- [postgres]
    idx            BIGINT NOT NULL,
    channel        TEXT NOT NULL,
    type           TEXT NOT NULL,
    data           BYTES NOT NULL,
    UNIQUE (thread_seq, namespace, checkpoint_id, task_id, idx)
) STRICT;

-- What a graph remembers beyond its threads. `path` is the namespace, a part at a time.
CREATE TABLE item (
    seq         BIGKEY,
    scope       TEXT NOT NULL,
    path        TEXT NOT NULL, -- [sqlite]
    key         TEXT NOT NULL, -- [sqlite]
    path        TEXT COLLATE "C" NOT NULL, -- [postgres]
    key         TEXT COLLATE "C" NOT NULL, -- [postgres]
    value       TEXT NOT NULL,
    created_us  BIGINT NOT NULL,
    updated_us  BIGINT NOT NULL,
    ttl_us      BIGINT,
    expires_us  BIGINT,
    UNIQUE (scope, path, key)
) STRICT;
CREATE INDEX item_over ON item (expires_us) WHERE expires_us IS NOT NULL;
""",
)
