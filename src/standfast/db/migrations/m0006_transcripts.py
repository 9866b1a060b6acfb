"""Transcripts: tool calls, usage, and where imported things came from.

Imported messages are ordinary messages with four facts more: the id their agent gave them
(`native`, so that a copy in another file is known), where the raw record is (`import_seq`,
`import_offset`), a `summary` for the timeline, and whether the agent changed or took them back.
"""

from __future__ import annotations

from standfast.db.migrations.migration import Migration

MIGRATION = Migration(
    version=6,
    name="transcripts",
    text="""
-- One call of a tool, from a hook or from a transcript, known by its session and the agent's own id of
-- the call. Without an answer its status is 'unknown': nobody knows how it ended. `tool` and
-- `called_us` are null for an answer whose call was never seen; `position` is the message it belongs to.
CREATE TABLE tool_call (
    seq            BIGKEY,
    id             TEXT NOT NULL UNIQUE,
    session_id     TEXT NOT NULL,
    node_id        TEXT,
    call_id        TEXT NOT NULL,
    tool           TEXT,
    status         TEXT NOT NULL CHECK (status IN ('pending', 'ok', 'error', 'cancelled', 'unknown')),
    input          TEXT,
    output         TEXT,
    summary        TEXT,
    exit_code      BIGINT,
    duration_us    BIGINT,
    position       BIGINT,
    origin         TEXT NOT NULL CHECK (origin IN ('hook', 'transcript')),
    called_us      BIGINT,
    answered_us    BIGINT,
    occurred_us    BIGINT NOT NULL,
    created_us     BIGINT NOT NULL,
    updated_us     BIGINT NOT NULL,
    import_seq     BIGINT,
    import_offset  BIGINT,
    UNIQUE (session_id, call_id)
);
CREATE INDEX tool_call_by_time ON tool_call (occurred_us);
CREATE INDEX tool_call_by_import ON tool_call (import_seq) WHERE import_seq IS NOT NULL;

-- What one response of a model cost. `response` names it across every file that repeats it.
-- Counted as the agent counts: Claude Code and opencode leave cached tokens out of the input, Codex and
-- Gemini CLI count them in.
CREATE TABLE usage (
    seq                  BIGKEY,
    id                   TEXT NOT NULL UNIQUE,
    session_id           TEXT NOT NULL,
    node_id              TEXT,
    response             TEXT NOT NULL UNIQUE,
    model                TEXT,
    input_tokens         BIGINT NOT NULL,
    cached_input_tokens  BIGINT NOT NULL,
    cache_write_tokens   BIGINT NOT NULL,
    output_tokens        BIGINT NOT NULL,
    reasoning_tokens     BIGINT NOT NULL,
    cost_microusd        BIGINT,
    occurred_us          BIGINT NOT NULL,
    created_us           BIGINT NOT NULL,
    import_seq           BIGINT
);
CREATE INDEX usage_by_session ON usage (session_id, occurred_us);
CREATE INDEX usage_by_import ON usage (import_seq) WHERE import_seq IS NOT NULL;

-- A file or database that was read, and how far. `identity` and `head` say whether it is still the
-- same file; `carry` is what the reader must know to go on at `upto`.
CREATE TABLE import_source (
    seq          BIGKEY,
    id           TEXT NOT NULL UNIQUE,
    agent        TEXT NOT NULL,
    host         TEXT NOT NULL,
    path         TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('current', 'gone', 'unreadable')),
    note         TEXT,
    native_id    TEXT,
    session_id   TEXT,
    identity     TEXT NOT NULL,
    head         TEXT NOT NULL,
    size_bytes   BIGINT NOT NULL,
    mtime_us     BIGINT NOT NULL,
    upto         BIGINT NOT NULL,
    generation   BIGINT NOT NULL,
    reader       BIGINT NOT NULL,
    carry        TEXT NOT NULL,
    counts       TEXT NOT NULL,
    first_us     BIGINT,
    last_us      BIGINT,
    created_us   BIGINT NOT NULL,
    updated_us   BIGINT NOT NULL,
    UNIQUE (agent, host, path)
) STRICT;

-- The raw records as they stood in the file, redacted and deflated, one row per batch.
CREATE TABLE import_batch (
    import_seq   BIGINT NOT NULL,
    generation   BIGINT NOT NULL,
    from_offset  BIGINT NOT NULL,
    upto         BIGINT NOT NULL,
    records      BIGINT NOT NULL,
    raw          BYTES NOT NULL,
    created_us   BIGINT NOT NULL,
    PRIMARY KEY (import_seq, generation, from_offset)
) STRICT;

-- Where a conversation of an agent, main or sub-agent, went in the store.
CREATE TABLE import_thread (
    agent        TEXT NOT NULL,
    native_id    TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    node_id      TEXT NOT NULL,
    forked_from  TEXT,
    facts        TEXT,
    created_us   BIGINT NOT NULL,
    PRIMARY KEY (agent, native_id)
) STRICT;

ALTER TABLE message ADD COLUMN native TEXT;
ALTER TABLE message ADD COLUMN summary TEXT;
ALTER TABLE message ADD COLUMN import_seq BIGINT;
ALTER TABLE message ADD COLUMN import_offset BIGINT;
ALTER TABLE message ADD COLUMN revised_us BIGINT;
ALTER TABLE message ADD COLUMN retracted_us BIGINT;
CREATE UNIQUE INDEX message_native ON message (native) WHERE native IS NOT NULL;
CREATE INDEX message_imported ON message (occurred_us) WHERE summary IS NOT NULL;
""",
)
