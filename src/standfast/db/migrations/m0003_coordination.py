"""Coordination: tasks with episodes, agents, streams with consumers, webhooks, credits, and what was applied."""

from __future__ import annotations

from standfast.db.migrations.migration import Migration

MIGRATION = Migration(
    version=3,
    name="coordination",
    text="""
-- One row per episode of a problem; at most one of them is not closed.
CREATE TABLE task (
    id                TEXT NOT NULL PRIMARY KEY,
    scope             TEXT NOT NULL,
    fingerprint       TEXT NOT NULL,
    episode           BIGINT NOT NULL,
    state             TEXT NOT NULL CHECK (state IN ('open', 'snoozed', 'accepted', 'closed')),
    reason            TEXT,
    title             TEXT NOT NULL,
    body              TEXT,
    kind              TEXT NOT NULL,
    source            TEXT NOT NULL,
    priority          BIGINT NOT NULL,
    labels            TEXT NOT NULL,
    branch            TEXT,
    assignee          TEXT,
    parent_id         TEXT,
    session_id        TEXT,
    result            TEXT,
    occurrences       BIGINT NOT NULL,
    first_seen_us     BIGINT NOT NULL,
    last_seen_us      BIGINT NOT NULL,
    last_sweep        BIGINT,
    cool_down_us      BIGINT,
    snoozed_until_us  BIGINT,
    due_us            BIGINT,
    holder            TEXT,
    actor             TEXT,
    lease_until_us    BIGINT,
    lease_boot        TEXT,
    lease_mono_us     BIGINT,
    lease_for_us      BIGINT,
    fence             BIGINT NOT NULL,
    created_us        BIGINT NOT NULL,
    updated_us        BIGINT NOT NULL,
    closed_us         BIGINT,
    UNIQUE (scope, fingerprint, episode)
) STRICT;
CREATE UNIQUE INDEX task_current ON task (scope, fingerprint) WHERE state <> 'closed';
CREATE INDEX task_ready ON task (scope, priority, created_us, id) WHERE state IN ('open', 'snoozed');
CREATE INDEX task_by_source ON task (scope, source, last_sweep) WHERE state <> 'closed';
CREATE INDEX task_by_parent ON task (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX task_by_state ON task (scope, state, id);
CREATE INDEX task_held ON task (holder) WHERE holder IS NOT NULL;

CREATE TABLE task_need (
    task_id   TEXT NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    needs_id  TEXT NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    PRIMARY KEY (task_id, needs_id)
) STRICT;
CREATE INDEX task_need_back ON task_need (needs_id);

CREATE TABLE task_note (
    id          TEXT NOT NULL PRIMARY KEY,
    task_id     TEXT NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    text        TEXT NOT NULL,
    actor       TEXT NOT NULL,
    created_us  BIGINT NOT NULL
) STRICT;
CREATE INDEX task_note_by_task ON task_note (task_id, created_us);

-- How often a source has been swept: a task absent from enough of its sweeps can close.
CREATE TABLE sweep (
    scope       TEXT NOT NULL,
    source      TEXT NOT NULL,
    n           BIGINT NOT NULL,
    updated_us  BIGINT NOT NULL,
    PRIMARY KEY (scope, source)
) STRICT;

-- Known from first use. Stale and crashed are derived.
CREATE TABLE agent (
    scope          TEXT NOT NULL,
    name           TEXT NOT NULL,
    kind           TEXT,
    status         TEXT NOT NULL CHECK (status IN ('idle', 'active', 'blocked', 'error')),
    status_why     TEXT,
    task_id        TEXT,
    config         TEXT,
    metadata       TEXT,
    holder         TEXT,
    first_seen_us  BIGINT NOT NULL,
    last_seen_us   BIGINT NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT;

-- The last version of each stream: appends to one stream take turns here, and only here.
CREATE TABLE stream (
    scope       TEXT NOT NULL,
    name        TEXT NOT NULL,
    version     BIGINT NOT NULL,
    updated_us  BIGINT NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT;

CREATE TABLE consumer (
    scope       TEXT NOT NULL,
    name        TEXT NOT NULL,
    stream      TEXT NOT NULL,
    cursor      TEXT NOT NULL,
    version     BIGINT NOT NULL,
    updated_us  BIGINT NOT NULL,
    PRIMARY KEY (scope, name, stream)
) STRICT;

-- Deletable: a fold made again from its stream.
CREATE TABLE snapshot (
    scope       TEXT NOT NULL,
    fold        TEXT NOT NULL,
    stream      TEXT NOT NULL,
    version     BIGINT NOT NULL,
    data        TEXT NOT NULL,
    created_us  BIGINT NOT NULL,
    PRIMARY KEY (scope, fold, stream, version)
) STRICT;

CREATE TABLE webhook_event (
    id              TEXT NOT NULL PRIMARY KEY,
    scope           TEXT NOT NULL,
    source          TEXT NOT NULL,
    event_id        TEXT NOT NULL,
    kind            TEXT,
    hash            TEXT NOT NULL,
    payload         TEXT NOT NULL,
    state           TEXT NOT NULL CHECK (state IN ('received', 'done', 'dead')),
    result          TEXT,
    error           TEXT,
    deliveries      BIGINT NOT NULL,
    attempts        BIGINT NOT NULL,
    attempts_max    BIGINT NOT NULL,
    ready_us        BIGINT NOT NULL,
    holder          TEXT,
    actor           TEXT,
    lease_until_us  BIGINT,
    lease_boot      TEXT,
    lease_mono_us   BIGINT,
    lease_for_us    BIGINT,
    fence           BIGINT NOT NULL,
    received_us     BIGINT NOT NULL,
    ended_us        BIGINT,
    UNIQUE (scope, source, event_id)
) STRICT;
CREATE INDEX webhook_event_ready ON webhook_event (scope, ready_us) WHERE state = 'received';
CREATE INDEX webhook_event_held ON webhook_event (holder) WHERE holder IS NOT NULL;

-- What could not be delivered or handled, with the reason; mail uses it too.
CREATE TABLE dead_letter (
    id           TEXT NOT NULL PRIMARY KEY,
    scope        TEXT NOT NULL,
    subject      TEXT NOT NULL,
    kind         TEXT NOT NULL,
    reason       TEXT NOT NULL,
    attempts     BIGINT NOT NULL,
    created_us   BIGINT NOT NULL,
    settled_us   BIGINT,
    settlement   TEXT CHECK (settlement IN ('retried', 'resolved')),
    settled_by   TEXT,
    note         TEXT
) STRICT;
CREATE UNIQUE INDEX dead_letter_open ON dead_letter (subject) WHERE settled_us IS NULL;
CREATE INDEX dead_letter_by_time ON dead_letter (scope, created_us);

-- An append-only ledger: a key grants once, whatever is replayed in whatever order.
CREATE TABLE credit_entry (
    seq          BIGKEY,
    id           TEXT NOT NULL UNIQUE,
    scope        TEXT NOT NULL,
    account      TEXT NOT NULL,
    unit         TEXT NOT NULL,
    amount       BIGINT NOT NULL,
    key          TEXT NOT NULL,
    hash         TEXT NOT NULL,
    reason       TEXT,
    actor        TEXT NOT NULL,
    created_us   BIGINT NOT NULL,
    occurred_us  BIGINT NOT NULL,
    UNIQUE (scope, key)
);
CREATE INDEX credit_entry_by_account ON credit_entry (scope, account, unit, seq);

-- What `apply --commit` did, by the caller's key and the hash of the whole spec.
CREATE TABLE application (
    scope       TEXT NOT NULL,
    key         TEXT NOT NULL,
    spec_hash   TEXT NOT NULL,
    refs        TEXT NOT NULL,
    actor       TEXT NOT NULL,
    applied_us  BIGINT NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT;
""",
)
