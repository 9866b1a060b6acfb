"""Mail with its attempts, and one bound per box."""

from __future__ import annotations

from standfast.db.migrations.migration import Migration

MIGRATION = Migration(
    version=4,
    name="mail",
    text="""
-- One mail in one box. While `ended_us` is empty it is to be delivered; a lease that ran out gives it back.
-- No index speaks of `state`: sent, leased and read are told apart without rewriting one.
CREATE TABLE mail (
    seq             BIGKEY,
    id              TEXT NOT NULL UNIQUE,
    scope           TEXT NOT NULL,
    box             TEXT NOT NULL,
    sender          TEXT NOT NULL,
    thread_id       TEXT NOT NULL,
    reply_to_id     TEXT,
    subject         TEXT,
    body            TEXT NOT NULL,
    hash            TEXT NOT NULL,
    key             TEXT,
    priority        BIGINT NOT NULL,
    state           TEXT NOT NULL CHECK (state IN ('sent', 'leased', 'read', 'done', 'dead', 'expired')),
    reason          TEXT,
    attempts        BIGINT NOT NULL,
    attempts_max    BIGINT NOT NULL,
    provenance      TEXT NOT NULL,
    session_id      TEXT,
    ready_us        BIGINT NOT NULL,
    expires_us      BIGINT,
    holder          TEXT,
    actor           TEXT,
    lease_until_us  BIGINT,
    lease_boot      TEXT,
    lease_mono_us   BIGINT,
    lease_for_us    BIGINT,
    kept            BIGINT NOT NULL,
    fence           BIGINT NOT NULL,
    sent_us         BIGINT NOT NULL,
    read_us         BIGINT,
    ended_us        BIGINT,
    CHECK ((ended_us IS NULL) = (state IN ('sent', 'leased', 'read'))),
    CHECK ((holder IS NULL) = (lease_until_us IS NULL)),
    CHECK (state NOT IN ('leased', 'read') OR holder IS NOT NULL)
);
CREATE UNIQUE INDEX mail_by_key ON mail (scope, key) WHERE key IS NOT NULL;
-- `ended_us` is in it although it is always empty there: else SQLite would look at each row to count a box.
CREATE INDEX mail_waiting ON mail (scope, box, priority, seq, ended_us) WHERE ended_us IS NULL;
CREATE INDEX mail_ended ON mail (scope, box, seq) WHERE ended_us IS NOT NULL;
CREATE INDEX mail_by_thread ON mail (thread_id, seq) WHERE thread_id <> id;
CREATE INDEX mail_by_sender ON mail (scope, sender, seq);
CREATE INDEX mail_held ON mail (holder) WHERE holder IS NOT NULL;
CREATE INDEX mail_expiring ON mail (expires_us) WHERE expires_us IS NOT NULL AND ended_us IS NULL;

-- Every time somebody took a mail, and how that ended. Written by standfast, never by whoever took it.
CREATE TABLE mail_attempt (
    mail_id    TEXT NOT NULL,
    n          BIGINT NOT NULL,
    fence      BIGINT NOT NULL,
    actor      TEXT NOT NULL,
    holder     TEXT NOT NULL,
    began_us   BIGINT NOT NULL,
    ended_us   BIGINT,
    outcome    TEXT CHECK (outcome IN ('done', 'deferred', 'returned', 'refused', 'lost')),
    reason     TEXT,
    PRIMARY KEY (mail_id, n),
    CHECK ((ended_us IS NULL) = (outcome IS NULL))
) STRICT;

-- What is known of a box beside its mail: another bound than usual, who last looked into it, what it refused.
CREATE TABLE mail_box (
    scope       TEXT NOT NULL,
    box         TEXT NOT NULL,
    bound       BIGINT,
    seen_us     BIGINT,
    seen_by     TEXT,
    refused     BIGINT NOT NULL,
    refused_us  BIGINT,
    PRIMARY KEY (scope, box)
) STRICT;
""",
)
