"""Search: an index of words over messages, decisions, tool calls, mail and tasks.

Deletable: everything in it is made again from the rows it speaks of. On SQLite the words are in a
contentless FTS5 table whose row ids are the entries' `seq`, readable with any SQLite; on PostgreSQL
beside the entry.
"""

from __future__ import annotations

from standfast.db.migrations.migration import Migration

MIGRATION = Migration(
    version=7,
    name="search",
    text="""
-- One row per thing that can be found. `version_us` says which state of it was indexed, `hash` by which
-- words; new words get a new `seq`, and those of the old one lead nowhere.
CREATE TABLE search_entry (
    seq          BIGKEY,
    subject      TEXT NOT NULL UNIQUE,
    kind         TEXT NOT NULL CHECK (kind IN ('message', 'decision', 'tool_call', 'mail', 'task')),
    words        tsvector NOT NULL DEFAULT '', -- [postgres]
    scope        TEXT NOT NULL,
    session_id   TEXT,
    agent        TEXT,
    role         TEXT,
    tool         TEXT,
    occurred_us  BIGINT NOT NULL,
    version_us   BIGINT NOT NULL,
    hash         TEXT NOT NULL
);
CREATE INDEX search_entry_words ON search_entry USING gin (words); -- [postgres]
CREATE VIRTUAL TABLE search_words USING fts5 (body, content = ''); -- [sqlite]

-- Up to where each source has been indexed; what lies behind the mark is looked at directly.
CREATE TABLE search_mark (
    source      TEXT NOT NULL PRIMARY KEY,
    mark        BIGINT NOT NULL,
    updated_us  BIGINT NOT NULL
) STRICT;

-- An answer may come long after its call.
CREATE INDEX tool_call_by_update ON tool_call (updated_us);
""",
)
