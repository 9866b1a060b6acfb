"""Mail with its attempts, and one bound per box."""

from __future__ import annotations

from standfast.db.migrations.migration import Migration

MIGRATION = Migration(
    version=4,
    name="mail",
    text="""
-- One mail to one box. `leased` is a lease; a mail whose lease ran out is ready again.
CREATE TABLE mail (
    seq             BIGKEY,
    id              TEXT NOT NULL UNIQUE,
    scope           TEXT NOT NULL,
    box             TEXT NOT NULL,
    sender          TEXT NOT NULL,
    thread_id       TEXT NOT NULL,
    reply_to_id     TEXT,
    subject         TEXT,
    body            TEXT,
    body_hash       TEXT NOT NULL,
    key             TEXT,
    priority        BIGINT NOT NULL,
    state           TEXT NOT NULL CHECK (state IN ('sent', 'leased', 'read', 'done', 'dead', 'expired')),
    reason          TEXT,
    attempts        BIGINT NOT NULL,
    attempts_max    BIGINT NOT NULL,
    provenance      TEXT,
    session_id      TEXT,
    ready_us        BIGINT NOT NULL,
    expires_us      BIGINT,
    holder          TEXT,
    actor           TEXT,
    lease_until_us  BIGINT,
    lease_boot      TEXT,
    lease_mono_us   BIGINT,
    lease_for_us    BIGINT,
    fence           BIGINT NOT NULL,
    sent_us         BIGINT NOT NULL,
    read_us         BIGINT,
    ended_us        BIGINT
);
CREATE UNIQUE INDEX mail_by_key ON mail (scope, key) WHERE key IS NOT NULL;
CREATE INDEX mail_ready ON mail (scope, box, priority, seq) WHERE state IN ('sent', 'leased', 'read');
CREATE INDEX mail_by_thread ON mail (thread_id, seq);
CREATE INDEX mail_by_sender ON mail (scope, sender, seq);
CREATE INDEX mail_held ON mail (holder) WHERE holder IS NOT NULL;
CREATE INDEX mail_expiring ON mail (expires_us) WHERE expires_us IS NOT NULL AND state IN ('sent', 'leased', 'read');

CREATE TABLE mail_attempt (
    id         TEXT NOT NULL PRIMARY KEY,
    mail_id    TEXT NOT NULL,
    n          BIGINT NOT NULL,
    actor      TEXT NOT NULL,
    holder     TEXT NOT NULL,
    began_us   BIGINT NOT NULL,
    ended_us   BIGINT,
    outcome    TEXT CHECK (outcome IN ('done', 'deferred', 'returned', 'failed', 'lost')),
    reason     TEXT,
    UNIQUE (mail_id, n)
) STRICT;

-- How many mails wait in a box: one bound per box, checked where the count is kept.
CREATE TABLE mail_box (
    scope       TEXT NOT NULL,
    box         TEXT NOT NULL,
    waiting     BIGINT NOT NULL,
    bound       BIGINT NOT NULL,
    updated_us  BIGINT NOT NULL,
    PRIMARY KEY (scope, box)
) STRICT;
""",
)
