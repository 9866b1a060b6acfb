"""Columns for the identity of a store, the repository of a row, and what an approval binds.

`git_dir` and `origin` label a row with the repository it came from: two rows belong to one repository if
either matches, and table `repository` gives every label that was used an id. `meta.epoch` counts how often the
store was put back in time. Every column is nullable. Older versions do not write these columns, so their next write
is refused.

Older versions kept the repository in `scope`, so that one key was two things in two directories. It moves into the
label, and `scope` becomes empty, except for what belongs to a repository (task, sweep, decision, state, gate) and for
a row whose key would then exist twice: `doctor` lists those. A row of the journal keeps its scope, which its receipt
is a hash of, unless it belongs to a stream.

On PostgreSQL triggers keep what no role may do to another's rows (db/postgres/roles.py): a dispatch consumes its
grant, the journal is only added to, and who may not write loops stores no command.
"""

from __future__ import annotations

from standfast.db.migrations.migration import Migration

LABELLED = (
    "event",
    "lease",
    "session",
    "effect",
    "decision",
    "approval",
    "gate",
    "state",
    "artifact",
    "task",
    "sweep",
    "agent",
    "stream",
    "consumer",
    "snapshot",
    "webhook_event",
    "dead_letter",
    "credit_entry",
    "application",
    "mail",
    "mail_box",
    "loop",
    "run",
    "search_entry",
    "thread",
    "item",
)
"""Every table with a `scope` column."""

_LABELS = "\n".join(
    f"ALTER TABLE {table} ADD COLUMN git_dir TEXT;\nALTER TABLE {table} ADD COLUMN origin TEXT;" for table in LABELLED
)

_GIT_DIR = "CASE WHEN scope LIKE '/%' THEN scope END"
_ORIGIN = "CASE WHEN scope NOT LIKE '/%' THEN scope END"
_FROM_SCOPE = "\n".join(
    f"UPDATE {table} SET git_dir = {_GIT_DIR}, origin = {_ORIGIN} WHERE scope LIKE '%/%';" for table in LABELLED
)
_HOMES = " UNION ALL ".join(
    f"SELECT scope, {time} AS time_us FROM {table}"
    for table, time in (
        ("task", "created_us"),
        ("sweep", "updated_us"),
        ("decision", "created_us"),
        ("state", "updated_us"),
        ("gate", "created_us"),
        ("session", "created_us"),
        ("effect", "planned_us"),
        ("loop", "created_us"),
    )
)
KEYED = {
    "lease": "name",
    "session": "key",
    "artifact": "digest, name, kind",
    "agent": "name",
    "stream": "name",
    "webhook_event": "source, event_id",
    "credit_entry": "key",
    "application": "key",
    "mail": "key",
    "mail_box": "box",
    "loop": "name",
    "thread": "key",
    "item": "path, key",
    "consumer": "name, stream",
    "effect": "key",
}
"""What a caller chooses, by table: unique in the store for each scope."""
_NOT_UNIQUE = {"mail": "key IS NULL", "loop": "state = 'removed'"}
_FOLLOWS = {
    "effect": "SELECT 1 FROM session f WHERE f.id = effect.session_id AND f.scope = effect.scope",
    "consumer": "SELECT 1 FROM stream f WHERE f.name = consumer.stream AND f.scope = consumer.scope",
    "event": "SELECT 1 FROM stream f WHERE f.name = event.stream AND f.scope = event.scope",
    "snapshot": "SELECT 1 FROM stream f WHERE f.name = snapshot.stream AND f.scope = snapshot.scope",
    "run": "SELECT 1 FROM loop f WHERE f.id = run.loop_id AND f.scope = run.scope",
    "approval": "SELECT 1 FROM effect f WHERE f.id = approval.effect_id AND f.scope = approval.scope",
}
"""What keeps its scope because the row that it belongs to does."""


def _moved(table: str) -> str:
    """Of rows with one key, the one with the first scope moves: none, if the key is in use outside repositories."""
    where = ["scope LIKE '%/%'"]
    if table in KEYED:
        keys, free = KEYED[table], _NOT_UNIQUE.get(table)
        used = f"(scope = '' OR scope LIKE '%/%') AND NOT ({free})" if free else "scope = '' OR scope LIKE '%/%'"
        first = f"({keys}, scope) IN (SELECT {keys}, MIN(scope) FROM {table} WHERE {used} GROUP BY {keys})"
        where.append(f"({free} OR {first})" if free else first)
    if table in _FOLLOWS:
        where.append(f"NOT EXISTS ({_FOLLOWS[table]})")
    if table == "event":
        where.append("stream IS NOT NULL")
    return f"UPDATE {table} SET scope = '' WHERE {' AND '.join(where)};"


_EMPTIED = "\n".join(
    _moved(table) for table in (*KEYED, "event", "snapshot", "run", "approval", "dead_letter", "search_entry")
)

GUARDS = """
-- The default and not the writer says which account of the server wrote a row.
ALTER TABLE event ALTER COLUMN db_user SET DEFAULT session_user;

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the journal is only added to' USING ERRCODE = '42501';
END $$;
CREATE TRIGGER event_guard BEFORE UPDATE OR DELETE OR TRUNCATE ON event
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Runs as the owner: the role that dispatches may not change an approval. The number of attempts is the question's,
-- not the column of the row. 40001: the grant was there a moment ago.
CREATE FUNCTION use_grant() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = standfast, pg_temp AS $$
BEGIN
    UPDATE approval
    SET attempts_used = COALESCE(attempts_used, 0) + 1, consumed_us = NEW.dispatched_us, attempt = NEW.attempt,
        state = CASE WHEN COALESCE(attempts_used, 0) + 1 < CAST(CAST(question AS json) ->> 'attempts' AS bigint)
                     THEN 'granted' ELSE 'consumed' END
    WHERE effect_id = NEW.id AND state = 'granted';
    IF NOT FOUND AND EXISTS (SELECT 1 FROM approval WHERE effect_id = NEW.id) THEN
        RAISE EXCEPTION 'effect % was asked for and has no grant', NEW.id USING ERRCODE = '40001';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER effect_grant AFTER UPDATE ON effect FOR EACH ROW
    WHEN (NEW.state = 'dispatched' AND (OLD.state <> 'dispatched' OR OLD.attempt <> NEW.attempt))
    EXECUTE FUNCTION use_grant();

-- A stored command is run by others: who may not write loops may not store one.
CREATE FUNCTION refuse_command() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT has_table_privilege('standfast.loop', 'INSERT') THEN
        RAISE EXCEPTION 'role % may not store a command in %', current_user, TG_TABLE_NAME USING ERRCODE = '42501';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER session_command_insert BEFORE INSERT ON session FOR EACH ROW
    WHEN (NEW.command IS NOT NULL) EXECUTE FUNCTION refuse_command();
CREATE TRIGGER session_command_update BEFORE UPDATE ON session FOR EACH ROW
    WHEN (NEW.command IS NOT NULL AND NEW.command IS DISTINCT FROM OLD.command) EXECUTE FUNCTION refuse_command();
CREATE TRIGGER state_verify_insert BEFORE INSERT ON state FOR EACH ROW
    WHEN (NEW.verify IS NOT NULL) EXECUTE FUNCTION refuse_command();
CREATE TRIGGER state_verify_update BEFORE UPDATE ON state FOR EACH ROW
    WHEN (NEW.verify IS NOT NULL AND NEW.verify IS DISTINCT FROM OLD.verify) EXECUTE FUNCTION refuse_command();
"""


def _on_postgres(text: str) -> str:
    return "\n".join(f"{line} -- [postgres]" for line in text.strip().splitlines())


MIGRATION = Migration(
    version=11,
    name="identity",
    min_writer=11,
    text=f"""
{_LABELS}

-- '' stands for a part that a label lacks.
CREATE TABLE repository (
    git_dir     TEXT NOT NULL,
    origin      TEXT NOT NULL,
    id          TEXT NOT NULL,
    created_us  BIGINT NOT NULL,
    PRIMARY KEY (git_dir, origin)
) STRICT;
CREATE INDEX repository_by_origin ON repository (origin);
CREATE INDEX repository_by_id ON repository (id);
INSERT INTO repository (git_dir, origin, id, created_us)
SELECT COALESCE({_GIT_DIR}, ''), COALESCE({_ORIGIN}, ''), scope, MIN(time_us)
FROM ({_HOMES}) AS homes
WHERE scope LIKE '%/%'
GROUP BY scope;
{_FROM_SCOPE}
{_EMPTIED}
-- A session's values are kept with it: its id is their namespace.
UPDATE state SET scope = (SELECT s.scope FROM session s WHERE s.id = state.namespace)
WHERE namespace IN (SELECT id FROM session);

INSERT INTO meta (key, value) VALUES ('epoch', '1');

ALTER TABLE event ADD COLUMN xid BIGINT; -- [sqlite]
ALTER TABLE event ADD COLUMN salt BYTES;
ALTER TABLE event ADD COLUMN commit_ref TEXT;
ALTER TABLE event ADD COLUMN ref TEXT;
ALTER TABLE event ADD COLUMN backrefs TEXT;
ALTER TABLE event ADD COLUMN db_user TEXT;

ALTER TABLE effect ADD COLUMN result_shape TEXT;
ALTER TABLE effect ADD COLUMN retry_at_us BIGINT;
CREATE INDEX effect_unresolved ON effect (tool, by_hash) WHERE state = 'dispatched';

-- The question is the text that the approver reads; a grant is bound to its hash.
ALTER TABLE approval ADD COLUMN question TEXT;
ALTER TABLE approval ADD COLUMN question_hash TEXT;
ALTER TABLE approval ADD COLUMN attempts BIGINT;
ALTER TABLE approval ADD COLUMN attempts_used BIGINT;
ALTER TABLE approval ADD COLUMN method TEXT;
ALTER TABLE approval ADD COLUMN proof TEXT;
UPDATE approval SET question_hash = intent_hash;
DROP INDEX approval_current;
CREATE UNIQUE INDEX approval_current ON approval (effect_id, question_hash) WHERE state IN ('requested', 'granted');

ALTER TABLE session ADD COLUMN title TEXT;
ALTER TABLE session ADD COLUMN expires_us BIGINT;
ALTER TABLE node ADD COLUMN tool_use_id TEXT;
ALTER TABLE node ADD COLUMN description TEXT;

-- A daemon runs only the loops of its own account and host.
ALTER TABLE loop ADD COLUMN account TEXT;
ALTER TABLE loop ADD COLUMN host TEXT;

-- `via` = 'ask': the agent asks its user in its own prompt.
ALTER TABLE gate ADD COLUMN via TEXT;
ALTER TABLE gate ADD COLUMN paused_until_us BIGINT;

{_on_postgres(GUARDS)}
""",
)
