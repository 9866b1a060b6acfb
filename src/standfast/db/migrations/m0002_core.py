"""The core: sessions with their nodes, messages and steps; effects, decisions, approvals and
gates; state; checkpoints; artifacts.

Wherever a row can be held, it carries the columns of a lease: holder, lease_until_us,
lease_boot, lease_mono_us, lease_for_us, and a fence (for an effect, its attempt).
"""

from __future__ import annotations

from standfast.db.migrations.migration import Migration

MIGRATION = Migration(
    version=2,
    name="core",
    text="""
-- `crashed` is never stored: it is an active session whose holder is gone.
CREATE TABLE session (
    id              TEXT NOT NULL PRIMARY KEY,
    scope           TEXT NOT NULL,
    key             TEXT NOT NULL,
    state           TEXT NOT NULL CHECK (state IN ('active', 'waiting', 'completed', 'failed')),
    reason          TEXT,
    agent           TEXT,
    command         TEXT,
    cwd             TEXT,
    preview         TEXT,
    cursor          TEXT,
    parent_id       TEXT,
    cut_node_id     TEXT,
    cut_position    BIGINT,
    cut_cursor      TEXT,
    cut_seq         BIGINT,
    openings        BIGINT NOT NULL,
    holder          TEXT,
    actor           TEXT,
    lease_until_us  BIGINT,
    lease_boot      TEXT,
    lease_mono_us   BIGINT,
    lease_for_us    BIGINT,
    fence           BIGINT NOT NULL,
    created_us      BIGINT NOT NULL,
    updated_us      BIGINT NOT NULL,
    ended_us        BIGINT,
    UNIQUE (scope, key)
) STRICT;
CREATE INDEX session_by_update ON session (scope, updated_us);
CREATE INDEX session_held ON session (holder) WHERE holder IS NOT NULL;
CREATE INDEX session_open ON session (state, updated_us) WHERE state IN ('active', 'waiting');

-- A sub-agent of a session; the root has no name and no parent ('').
CREATE TABLE node (
    id             TEXT NOT NULL PRIMARY KEY,
    session_id     TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    parent_id      TEXT NOT NULL,
    name           TEXT NOT NULL,
    title           TEXT,
    first_position  BIGINT NOT NULL,
    next_position   BIGINT NOT NULL,
    created_us     BIGINT NOT NULL,
    UNIQUE (session_id, parent_id, name)
) STRICT;

-- `content` is the text itself, or JSON: `format` says which. Not STRICT: it grows large.
CREATE TABLE message (
    seq          BIGKEY,
    id           TEXT NOT NULL UNIQUE,
    session_id   TEXT NOT NULL,
    node_id      TEXT NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    position     BIGINT NOT NULL,
    role         TEXT NOT NULL,
    format       TEXT NOT NULL CHECK (format IN ('text', 'json')),
    content      TEXT NOT NULL,
    hash         TEXT NOT NULL,
    key          TEXT,
    actor        TEXT NOT NULL,
    created_us   BIGINT NOT NULL,
    occurred_us  BIGINT NOT NULL,
    UNIQUE (node_id, position)
);
CREATE UNIQUE INDEX message_by_key ON message (node_id, key) WHERE key IS NOT NULL;

-- A computation that was done: known by name and arguments, and by its number in one opening.
CREATE TABLE step (
    seq             BIGKEY,
    id              TEXT NOT NULL UNIQUE,
    session_id      TEXT NOT NULL,
    name            TEXT NOT NULL,
    arguments_hash  TEXT NOT NULL,
    n               BIGINT NOT NULL,
    result          TEXT,
    artifact_id     TEXT,
    duration_us     BIGINT NOT NULL,
    created_us      BIGINT NOT NULL,
    UNIQUE (session_id, name, arguments_hash, n)
);

-- Something the outside world can see. `key` is the caller's, or derived from session, tool and
-- the fields that identify it ('by:…'). An emptied row stays as the tombstone of its key, so no
-- foreign key ties it to its session.
CREATE TABLE effect (
    id                   TEXT NOT NULL PRIMARY KEY,
    scope                TEXT NOT NULL,
    session_id           TEXT,
    node_id              TEXT,
    task_id              TEXT,
    tool                 TEXT NOT NULL,
    key                  TEXT NOT NULL,
    n                    BIGINT NOT NULL,
    by_hash              TEXT NOT NULL,
    intent_hash          TEXT NOT NULL,
    intent               TEXT,
    context              TEXT,
    state                TEXT NOT NULL CHECK
        (state IN ('planned', 'dispatched', 'acknowledged', 'failed', 'compensated', 'superseded')),
    attempt              BIGINT NOT NULL,
    idempotent_us        BIGINT,
    holder               TEXT,
    actor                TEXT,
    lease_until_us       BIGINT,
    lease_boot           TEXT,
    lease_mono_us        BIGINT,
    lease_for_us         BIGINT,
    gave_up_us           BIGINT,
    result               TEXT,
    artifact_id          TEXT,
    external_ref         TEXT,
    error                TEXT,
    evidence             TEXT,
    approval_id          TEXT,
    successor_id         TEXT,
    pruned_us            BIGINT,
    planned_us           BIGINT NOT NULL,
    first_dispatched_us  BIGINT,
    dispatched_us        BIGINT,
    ended_us             BIGINT,
    updated_us           BIGINT NOT NULL,
    UNIQUE (scope, key)
);
CREATE INDEX effect_by_session ON effect (session_id, planned_us) WHERE session_id IS NOT NULL;
CREATE INDEX effect_open ON effect (state, updated_us) WHERE state IN ('planned', 'dispatched');
CREATE INDEX effect_held ON effect (holder) WHERE holder IS NOT NULL;
CREATE INDEX effect_by_tool ON effect (tool, planned_us);

CREATE VIEW effect_transition AS
    SELECT seq, subject AS effect_id, state, time_us, actor, holder, session_id, summary
    FROM event
    WHERE type IN ('effect.planned', 'effect.dispatched', 'effect.acknowledged', 'effect.failed',
                   'effect.compensated', 'effect.superseded', 'effect.resolved', 'effect.gave_up');

-- Written before acting. `identity` is the hash of what and then; `n` counts repeats in one opening.
CREATE TABLE decision (
    id          TEXT NOT NULL PRIMARY KEY,
    scope       TEXT NOT NULL,
    session_id  TEXT,
    node_id     TEXT,
    position    BIGINT,
    what        TEXT NOT NULL,
    why         TEXT,
    plan        TEXT,
    identity    TEXT NOT NULL,
    n           BIGINT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('open', 'done', 'failed', 'standing', 'withdrawn')),
    outcome     TEXT,
    agent       TEXT,
    actor       TEXT NOT NULL,
    tags        TEXT NOT NULL,
    created_us  BIGINT NOT NULL,
    closed_us   BIGINT
) STRICT;
CREATE UNIQUE INDEX decision_once ON decision (session_id, identity, n) WHERE session_id IS NOT NULL;
CREATE UNIQUE INDEX decision_standing ON decision (scope, identity) WHERE state = 'standing';
CREATE INDEX decision_by_time ON decision (scope, created_us);
CREATE INDEX decision_open ON decision (state, created_us) WHERE state IN ('open', 'standing');

-- A person's yes or no to one intent, bound to its hash.
CREATE TABLE approval (
    id            TEXT NOT NULL PRIMARY KEY,
    scope         TEXT NOT NULL,
    session_id    TEXT,
    effect_id     TEXT NOT NULL,
    gate          TEXT,
    tool          TEXT NOT NULL,
    intent_hash   TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('requested', 'granted', 'denied', 'expired', 'consumed')),
    requester     TEXT NOT NULL,
    why           TEXT,
    approver      TEXT,
    rationale     TEXT,
    requested_us  BIGINT NOT NULL,
    expires_us    BIGINT NOT NULL,
    answered_us   BIGINT,
    consumed_us   BIGINT,
    attempt       BIGINT
) STRICT;
CREATE UNIQUE INDEX approval_current ON approval (effect_id, intent_hash) WHERE state IN ('requested', 'granted');
CREATE INDEX approval_by_effect ON approval (effect_id, requested_us);
CREATE INDEX approval_waiting ON approval (scope, requested_us) WHERE state = 'requested';

CREATE TABLE gate (
    id          TEXT NOT NULL PRIMARY KEY,
    scope       TEXT NOT NULL,
    pattern     TEXT NOT NULL,
    need        TEXT NOT NULL CHECK (need IN ('approval', 'effect')),
    why         TEXT,
    actor       TEXT NOT NULL,
    created_us  BIGINT NOT NULL,
    removed_us  BIGINT
) STRICT;
CREATE UNIQUE INDEX gate_standing ON gate (scope, pattern) WHERE removed_us IS NULL;

-- Namespaced values with versions; a session's own are in the namespace of its id.
CREATE TABLE state (
    scope        TEXT NOT NULL,
    namespace    TEXT NOT NULL,
    key          TEXT NOT NULL,
    value        TEXT NOT NULL,
    version      BIGINT NOT NULL,
    json_schema  TEXT,
    verify       TEXT,
    verified_us  BIGINT,
    verdict      TEXT,
    actor        TEXT NOT NULL,
    updated_us   BIGINT NOT NULL,
    expires_us   BIGINT,
    PRIMARY KEY (scope, namespace, key)
) STRICT;
CREATE INDEX state_expiring ON state (expires_us) WHERE expires_us IS NOT NULL;

-- Deletable: everything in it can be made again from messages, steps and effects.
CREATE TABLE checkpoint (
    id             TEXT NOT NULL PRIMARY KEY,
    session_id     TEXT NOT NULL,
    node_id        TEXT NOT NULL,
    from_position  BIGINT NOT NULL,
    to_position    BIGINT NOT NULL,
    cursor         TEXT,
    summary        TEXT,
    data           TEXT,
    cache_keys     TEXT,
    versions       TEXT,
    size_bytes     BIGINT NOT NULL,
    created_us     BIGINT NOT NULL
) STRICT;
CREATE INDEX checkpoint_by_node ON checkpoint (node_id, to_position);
CREATE INDEX checkpoint_by_session ON checkpoint (session_id, created_us);

-- Bytes known by their content. The bytes are files on SQLite and rows in artifact_chunk on
-- PostgreSQL, where another host must be able to resume.
CREATE TABLE artifact (
    id          TEXT NOT NULL PRIMARY KEY,
    scope       TEXT NOT NULL,
    session_id  TEXT,
    name        TEXT NOT NULL,
    kind        TEXT NOT NULL,
    digest      TEXT NOT NULL,
    uri         TEXT NOT NULL,
    size_bytes  BIGINT NOT NULL,
    retention   TEXT NOT NULL CHECK (retention IN ('keep', 'session', 'scratch')),
    actor       TEXT NOT NULL,
    created_us  BIGINT NOT NULL
) STRICT;
CREATE UNIQUE INDEX artifact_once ON artifact (scope, digest, name, kind);
CREATE INDEX artifact_by_digest ON artifact (digest);
CREATE INDEX artifact_by_session ON artifact (session_id, created_us) WHERE session_id IS NOT NULL;

CREATE TABLE artifact_chunk (
    digest  TEXT NOT NULL,
    n       BIGINT NOT NULL,
    bytes   BYTES NOT NULL,
    PRIMARY KEY (digest, n)
) STRICT;
""",
)
