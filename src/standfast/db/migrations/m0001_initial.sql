-- The schema of a store, in the order: the store itself and its journal, sessions, effects, values, tasks, agents
-- and streams, webhooks and credits, mail, loops, transcripts, copies, search, threads, items.
--
-- Every table with a `scope` column has the label of the repository that the row came from: `git_dir` and `origin`.
-- `scope` is the name that the user chose to separate keys ('' by default). task, sweep, decision, state and gate belong
-- to a repository: their unique keys have its id in `repository` ('' outside any). The others are unique in a scope.
-- Times are UTC microseconds and end in `_us`. No statement computes a time.

-- Facts about the store itself: store_id, epoch, min_writer, settled_seq, cluster, copy_of.
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

-- The label of a repository (its git directory and its origin) and the id that it means. Rows are only added, so
-- the id of a label never changes. '' is a part that a label lacks.
CREATE TABLE repository (
    git_dir     TEXT NOT NULL,
    origin      TEXT NOT NULL,
    id          TEXT NOT NULL,
    created_us  BIGINT NOT NULL,
    PRIMARY KEY (git_dir, origin)
) STRICT;
CREATE INDEX repository_by_origin ON repository (origin);
CREATE INDEX repository_by_id ON repository (id);

-- The journal. `time_us` is when it was recorded, `occurred_us` when it happened. `stream` is
-- null for events that a method wrote. Not STRICT: adding a column to a strict table reads all of it.
CREATE TABLE event (
    seq          BIGKEY,
    xid          BIGINT, -- [sqlite]
    xid          xid8 NOT NULL DEFAULT pg_current_xact_id(), -- [postgres]
    time_us      BIGINT NOT NULL,
    occurred_us  BIGINT NOT NULL,
    scope        TEXT NOT NULL,
    git_dir      TEXT,
    origin       TEXT,
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
    salt         BYTES,
    commit_ref   TEXT,
    ref          TEXT,
    backrefs     TEXT,
    db_user      TEXT, -- [sqlite]
    db_user      TEXT DEFAULT session_user, -- [postgres]
    CHECK ((stream IS NULL) = (version IS NULL))
);
CREATE INDEX event_by_time ON event (occurred_us);
CREATE INDEX event_by_subject ON event (subject, seq);
CREATE INDEX event_by_session ON event (session_id, seq) WHERE session_id IS NOT NULL;
CREATE UNIQUE INDEX event_by_stream ON event (scope, stream, version) WHERE stream IS NOT NULL;
CREATE INDEX event_by_xid ON event (xid, seq); -- [postgres]

-- Named locks. A row is never deleted: the fence must only grow.
CREATE TABLE lease (
    scope        TEXT NOT NULL,
    git_dir      TEXT,
    origin       TEXT,
    name         TEXT NOT NULL,
    LEASE,
    fence        BIGINT NOT NULL,
    acquired_us  BIGINT,
    note         TEXT,
    PRIMARY KEY (scope, name)
) STRICT;
CREATE INDEX lease_by_holder ON lease (holder) WHERE holder IS NOT NULL;

-- `crashed` is never stored: it is an active session whose holder is gone.
CREATE TABLE session (
    id            TEXT NOT NULL PRIMARY KEY,
    scope         TEXT NOT NULL,
    git_dir       TEXT,
    origin        TEXT,
    key           TEXT NOT NULL,
    title         TEXT,
    state         TEXT NOT NULL CHECK (state IN ('active', 'waiting', 'completed', 'failed')),
    reason        TEXT,
    agent         TEXT,
    command       TEXT,
    cwd           TEXT,
    preview       TEXT,
    cursor        TEXT,
    parent_id     TEXT,
    cut_node_id   TEXT,
    cut_position  BIGINT,
    cut_cursor    TEXT,
    cut_seq       BIGINT,
    openings      BIGINT NOT NULL,
    LEASE,
    fence         BIGINT NOT NULL,
    created_us    BIGINT NOT NULL,
    updated_us    BIGINT NOT NULL,
    ended_us      BIGINT,
    expires_us    BIGINT,
    UNIQUE (scope, key)
) STRICT;
CREATE INDEX session_by_update ON session (scope, updated_us);
CREATE INDEX session_held ON session (holder) WHERE holder IS NOT NULL;
CREATE INDEX session_open ON session (state, updated_us) WHERE state IN ('active', 'waiting');

-- A sub-agent of a session; the root has no name and no parent ('').
CREATE TABLE node (
    id              TEXT NOT NULL PRIMARY KEY,
    session_id      TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    parent_id       TEXT NOT NULL,
    name            TEXT NOT NULL,
    title           TEXT,
    tool_use_id     TEXT,
    description     TEXT,
    first_position  BIGINT NOT NULL,
    next_position   BIGINT NOT NULL,
    created_us      BIGINT NOT NULL,
    UNIQUE (session_id, parent_id, name)
) STRICT;

-- `content` is the text itself, or JSON: `format` says which. Not STRICT: it grows large.
CREATE TABLE message (
    seq            BIGKEY,
    id             TEXT NOT NULL UNIQUE,
    session_id     TEXT NOT NULL,
    node_id        TEXT NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    position       BIGINT NOT NULL,
    role           TEXT NOT NULL,
    format         TEXT NOT NULL CHECK (format IN ('text', 'json')),
    content        TEXT NOT NULL,
    hash           TEXT NOT NULL,
    key            TEXT,
    actor          TEXT NOT NULL,
    created_us     BIGINT NOT NULL,
    occurred_us    BIGINT NOT NULL,
    native         TEXT,
    summary        TEXT,
    import_seq     BIGINT,
    import_offset  BIGINT,
    revised_us     BIGINT,
    retracted_us   BIGINT,
    UNIQUE (node_id, position)
);
CREATE UNIQUE INDEX message_by_key ON message (node_id, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX message_native ON message (native) WHERE native IS NOT NULL;
CREATE INDEX message_imported ON message (occurred_us) WHERE summary IS NOT NULL;

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
    git_dir              TEXT,
    origin               TEXT,
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
    LEASE,
    gave_up_us           BIGINT,
    result               TEXT,
    result_shape         TEXT,
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
    retry_at_us          BIGINT,
    ended_us             BIGINT,
    updated_us           BIGINT NOT NULL,
    UNIQUE (scope, key)
);
CREATE INDEX effect_by_session ON effect (session_id, planned_us) WHERE session_id IS NOT NULL;
CREATE INDEX effect_open ON effect (state, updated_us) WHERE state IN ('planned', 'dispatched');
CREATE INDEX effect_held ON effect (holder) WHERE holder IS NOT NULL;
-- "The same effect elsewhere" is looked up by this.
CREATE INDEX effect_unresolved ON effect (tool, by_hash) WHERE state = 'dispatched';
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
    repository  TEXT NOT NULL,
    git_dir     TEXT,
    origin      TEXT,
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
CREATE UNIQUE INDEX decision_standing ON decision (scope, repository, identity) WHERE state = 'standing';
CREATE INDEX decision_by_time ON decision (scope, repository, created_us);
CREATE INDEX decision_open ON decision (state, created_us) WHERE state IN ('open', 'standing');

-- A person's answer to one question. The question is the text that the approver reads; a grant is bound to its hash.
CREATE TABLE approval (
    id             TEXT NOT NULL PRIMARY KEY,
    scope          TEXT NOT NULL,
    git_dir        TEXT,
    origin         TEXT,
    session_id     TEXT,
    effect_id      TEXT NOT NULL,
    gate           TEXT,
    tool           TEXT NOT NULL,
    intent_hash    TEXT NOT NULL,
    question       TEXT NOT NULL,
    question_hash  TEXT NOT NULL,
    attempts       BIGINT NOT NULL,
    attempts_used  BIGINT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('requested', 'granted', 'denied', 'expired', 'consumed')),
    requester      TEXT NOT NULL,
    why            TEXT,
    approver       TEXT,
    rationale      TEXT,
    method         TEXT,
    proof          TEXT,
    requested_us   BIGINT NOT NULL,
    expires_us     BIGINT NOT NULL,
    answered_us    BIGINT,
    consumed_us    BIGINT,
    attempt        BIGINT
) STRICT;
CREATE UNIQUE INDEX approval_current ON approval (effect_id, question_hash) WHERE state IN ('requested', 'granted');
CREATE INDEX approval_by_effect ON approval (effect_id, requested_us);
CREATE INDEX approval_waiting ON approval (scope, requested_us) WHERE state = 'requested';

CREATE TABLE gate (
    id               TEXT NOT NULL PRIMARY KEY,
    scope            TEXT NOT NULL,
    repository       TEXT NOT NULL,
    git_dir          TEXT,
    origin           TEXT,
    pattern          TEXT NOT NULL,
    need             TEXT NOT NULL CHECK (need IN ('approval', 'effect')),
    via              TEXT,
    why              TEXT,
    actor            TEXT NOT NULL,
    created_us       BIGINT NOT NULL,
    paused_until_us  BIGINT,
    removed_us       BIGINT
) STRICT;
CREATE UNIQUE INDEX gate_standing ON gate (scope, repository, pattern) WHERE removed_us IS NULL;

-- Namespaced values with versions; a session's own are in the namespace of its id.
CREATE TABLE state (
    scope        TEXT NOT NULL,
    repository   TEXT NOT NULL,
    git_dir      TEXT,
    origin       TEXT,
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
    PRIMARY KEY (scope, repository, namespace, key)
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
    git_dir     TEXT,
    origin      TEXT,
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

-- One row per episode of a problem; at most one of them is not closed.
CREATE TABLE task (
    id                TEXT NOT NULL PRIMARY KEY,
    scope             TEXT NOT NULL,
    repository        TEXT NOT NULL,
    git_dir           TEXT,
    origin            TEXT,
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
    LEASE,
    fence             BIGINT NOT NULL,
    created_us        BIGINT NOT NULL,
    updated_us        BIGINT NOT NULL,
    closed_us         BIGINT,
    UNIQUE (scope, repository, fingerprint, episode)
) STRICT;
CREATE UNIQUE INDEX task_current ON task (scope, repository, fingerprint) WHERE state <> 'closed';
CREATE INDEX task_ready ON task (scope, repository, priority, created_us, id) WHERE state IN ('open', 'snoozed');
CREATE INDEX task_by_source ON task (scope, repository, source, last_sweep) WHERE state <> 'closed';
CREATE INDEX task_by_parent ON task (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX task_by_state ON task (scope, repository, state, id);
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
    repository  TEXT NOT NULL,
    git_dir     TEXT,
    origin      TEXT,
    source      TEXT NOT NULL,
    n           BIGINT NOT NULL,
    updated_us  BIGINT NOT NULL,
    PRIMARY KEY (scope, repository, source)
) STRICT;

-- Known from first use. Stale and crashed are derived.
CREATE TABLE agent (
    scope          TEXT NOT NULL,
    git_dir        TEXT,
    origin         TEXT,
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
    git_dir     TEXT,
    origin      TEXT,
    name        TEXT NOT NULL,
    version     BIGINT NOT NULL,
    updated_us  BIGINT NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT;

CREATE TABLE consumer (
    scope       TEXT NOT NULL,
    git_dir     TEXT,
    origin      TEXT,
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
    git_dir     TEXT,
    origin      TEXT,
    fold        TEXT NOT NULL,
    stream      TEXT NOT NULL,
    version     BIGINT NOT NULL,
    data        TEXT NOT NULL,
    created_us  BIGINT NOT NULL,
    PRIMARY KEY (scope, fold, stream, version)
) STRICT;

CREATE TABLE webhook_event (
    id            TEXT NOT NULL PRIMARY KEY,
    scope         TEXT NOT NULL,
    git_dir       TEXT,
    origin        TEXT,
    source        TEXT NOT NULL,
    event_id      TEXT NOT NULL,
    kind          TEXT,
    hash          TEXT NOT NULL,
    payload       TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('received', 'done', 'dead')),
    result        TEXT,
    error         TEXT,
    deliveries    BIGINT NOT NULL,
    attempts      BIGINT NOT NULL,
    attempts_max  BIGINT NOT NULL,
    ready_us      BIGINT NOT NULL,
    LEASE,
    fence         BIGINT NOT NULL,
    received_us   BIGINT NOT NULL,
    ended_us      BIGINT,
    UNIQUE (scope, source, event_id)
) STRICT;
CREATE INDEX webhook_event_ready ON webhook_event (scope, ready_us) WHERE state = 'received';
CREATE INDEX webhook_event_held ON webhook_event (holder) WHERE holder IS NOT NULL;

-- What could not be delivered or handled, with the reason; mail uses it too.
CREATE TABLE dead_letter (
    id          TEXT NOT NULL PRIMARY KEY,
    scope       TEXT NOT NULL,
    git_dir     TEXT,
    origin      TEXT,
    subject     TEXT NOT NULL,
    kind        TEXT NOT NULL,
    reason      TEXT NOT NULL,
    attempts    BIGINT NOT NULL,
    created_us  BIGINT NOT NULL,
    settled_us  BIGINT,
    settlement  TEXT CHECK (settlement IN ('retried', 'resolved')),
    settled_by  TEXT,
    note        TEXT
) STRICT;
CREATE UNIQUE INDEX dead_letter_open ON dead_letter (subject) WHERE settled_us IS NULL;
CREATE INDEX dead_letter_by_time ON dead_letter (scope, created_us);

-- An append-only ledger: a key grants once, in any order of replays.
CREATE TABLE credit_entry (
    seq          BIGKEY,
    id           TEXT NOT NULL UNIQUE,
    scope        TEXT NOT NULL,
    git_dir      TEXT,
    origin       TEXT,
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
    git_dir     TEXT,
    origin      TEXT,
    key         TEXT NOT NULL,
    spec_hash   TEXT NOT NULL,
    refs        TEXT NOT NULL,
    actor       TEXT NOT NULL,
    applied_us  BIGINT NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT;

-- One mail in one box. While `ended_us` is empty it is to be delivered; a lease that ran out gives it back.
-- No index names `state`, so that a change between sent, leased and read rewrites none.
CREATE TABLE mail (
    seq           BIGKEY,
    id            TEXT NOT NULL UNIQUE,
    scope         TEXT NOT NULL,
    git_dir       TEXT,
    origin        TEXT,
    box           TEXT NOT NULL,
    sender        TEXT NOT NULL,
    thread_id     TEXT NOT NULL,
    reply_to_id   TEXT,
    subject       TEXT,
    body          TEXT NOT NULL,
    hash          TEXT NOT NULL,
    key           TEXT,
    priority      BIGINT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('sent', 'leased', 'read', 'done', 'dead', 'expired')),
    reason        TEXT,
    attempts      BIGINT NOT NULL,
    attempts_max  BIGINT NOT NULL,
    provenance    TEXT NOT NULL,
    session_id    TEXT,
    ready_us      BIGINT NOT NULL,
    expires_us    BIGINT,
    LEASE,
    kept          BIGINT NOT NULL,
    fence         BIGINT NOT NULL,
    sent_us       BIGINT NOT NULL,
    read_us       BIGINT,
    ended_us      BIGINT,
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

-- Each claim of a mail and how it ended. standfast writes these rows, never the claimer.
CREATE TABLE mail_attempt (
    mail_id   TEXT NOT NULL,
    n         BIGINT NOT NULL,
    fence     BIGINT NOT NULL,
    actor     TEXT NOT NULL,
    holder    TEXT NOT NULL,
    began_us  BIGINT NOT NULL,
    ended_us  BIGINT,
    outcome   TEXT CHECK (outcome IN ('done', 'deferred', 'returned', 'refused', 'lost')),
    reason    TEXT,
    PRIMARY KEY (mail_id, n),
    CHECK ((ended_us IS NULL) = (outcome IS NULL))
) STRICT;

-- What is known of a box beside its mail: another bound than usual, who last looked into it, what it refused.
CREATE TABLE mail_box (
    scope       TEXT NOT NULL,
    git_dir     TEXT,
    origin      TEXT,
    box         TEXT NOT NULL,
    bound       BIGINT,
    seen_us     BIGINT,
    seen_by     TEXT,
    refused     BIGINT NOT NULL,
    refused_us  BIGINT,
    PRIMARY KEY (scope, box)
) STRICT;

CREATE TABLE loop (
    id            TEXT NOT NULL PRIMARY KEY,
    scope         TEXT NOT NULL,
    git_dir       TEXT,
    origin        TEXT,
    name          TEXT NOT NULL,
    kind          TEXT NOT NULL CHECK (kind IN ('cron', 'every', 'once')),
    schedule      TEXT NOT NULL,
    zone          TEXT NOT NULL,
    command       TEXT NOT NULL,
    cwd           TEXT NOT NULL,
    environment   TEXT,
    catch_up      TEXT NOT NULL CHECK (catch_up IN ('latest', 'all', 'none')),
    catch_up_max  BIGINT NOT NULL,
    overlap       TEXT NOT NULL CHECK (overlap IN ('skip', 'queue')),
    timeout_us    BIGINT,
    retries_max   BIGINT NOT NULL,
    backoff_us    BIGINT NOT NULL,
    failures_max  BIGINT NOT NULL,
    failures      BIGINT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('active', 'paused', 'finished', 'removed')),
    reason        TEXT,
    spec_hash     TEXT NOT NULL,
    anchor_us     BIGINT NOT NULL,
    next_slot_us  BIGINT,
    last_slot_us  BIGINT,
    actor         TEXT NOT NULL,
    account       TEXT NOT NULL,
    host          TEXT NOT NULL,
    created_us    BIGINT NOT NULL,
    updated_us    BIGINT NOT NULL,
    CHECK (state IN ('active', 'paused') OR next_slot_us IS NULL)
) STRICT;
CREATE UNIQUE INDEX loop_by_name ON loop (scope, name) WHERE state <> 'removed';
CREATE INDEX loop_due ON loop (next_slot_us) WHERE next_slot_us IS NOT NULL;

-- One row per slot. Of a gap, the slots older than the newest thousand share one row.
CREATE TABLE run (
    seq            BIGKEY,
    id             TEXT NOT NULL UNIQUE,
    loop_id        TEXT NOT NULL,
    scope          TEXT NOT NULL,
    git_dir        TEXT,
    origin         TEXT,
    slot_us        BIGINT NOT NULL,
    until_slot_us  BIGINT,
    slots          BIGINT NOT NULL,
    source         TEXT NOT NULL CHECK (source IN ('slot', 'asked')),
    state          TEXT NOT NULL CHECK
        (state IN ('queued', 'running', 'done', 'failed', 'timed_out', 'skipped', 'missed', 'abandoned', 'cancelled')),
    reason         TEXT,
    attempt        BIGINT NOT NULL,
    ready_us       BIGINT NOT NULL,
    exit_code      BIGINT,
    duration_us    BIGINT,
    host           TEXT,
    pid            BIGINT,
    process        TEXT,
    stdout_id      TEXT,
    stderr_id      TEXT,
    cancel_reason  TEXT,
    LEASE,
    created_us     BIGINT NOT NULL,
    started_us     BIGINT,
    ended_us       BIGINT,
    UNIQUE (loop_id, slot_us),
    CHECK ((ended_us IS NULL) = (state IN ('queued', 'running'))),
    CHECK ((holder IS NULL) = (state <> 'running')),
    CHECK (slots >= 1 AND (slots = 1) = (until_slot_us IS NULL))
);
-- Two runs of one loop are never running at the same time.
CREATE UNIQUE INDEX run_alone ON run (loop_id) WHERE state = 'running';
CREATE INDEX run_queued ON run (ready_us, seq) WHERE state = 'queued';
CREATE INDEX run_open ON run (loop_id, slot_us) WHERE state IN ('queued', 'running');
CREATE INDEX run_held ON run (holder) WHERE holder IS NOT NULL;
CREATE INDEX run_by_time ON run (scope, slot_us, id);
CREATE INDEX run_ranges ON run (until_slot_us) WHERE until_slot_us IS NOT NULL;

-- One call of a tool, from a hook or from a transcript, known by its session and the agent's own id of
-- the call. Without an answer its status is 'unknown'. `tool` and
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
    source         TEXT NOT NULL CHECK (source IN ('hook', 'transcript')),
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
-- An answer may come long after its call.
CREATE INDEX tool_call_by_update ON tool_call (updated_us);

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
    seq         BIGKEY,
    id          TEXT NOT NULL UNIQUE,
    agent       TEXT NOT NULL,
    host        TEXT NOT NULL,
    path        TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('current', 'gone', 'unreadable')),
    note        TEXT,
    native_id   TEXT,
    session_id  TEXT,
    identity    TEXT NOT NULL,
    head        TEXT NOT NULL,
    size_bytes  BIGINT NOT NULL,
    mtime_us    BIGINT NOT NULL,
    upto        BIGINT NOT NULL,
    generation  BIGINT NOT NULL,
    reader      BIGINT NOT NULL,
    carry       TEXT NOT NULL,
    counts      TEXT NOT NULL,
    first_us    BIGINT,
    last_us     BIGINT,
    created_us  BIGINT NOT NULL,
    updated_us  BIGINT NOT NULL,
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

-- The copies of this store and their states. The manifest in the place decides whether a copy exists.
CREATE TABLE copy (
    id            TEXT NOT NULL PRIMARY KEY,
    place         TEXT NOT NULL,
    why           TEXT NOT NULL,
    note          TEXT,
    seq           BIGINT NOT NULL,
    size_bytes    BIGINT NOT NULL,
    actor         TEXT NOT NULL,
    taken_us      BIGINT NOT NULL,
    verified_us   BIGINT,
    tested_us     BIGINT,
    forgotten_us  BIGINT
) STRICT;
CREATE INDEX copy_by_time ON copy (taken_us);

-- One row per thing that can be found. `version_us` says which state of it was indexed, `hash` by which
-- words; new words get a new `seq`, and those of the old one lead nowhere.
CREATE TABLE search_entry (
    seq          BIGKEY,
    subject      TEXT NOT NULL UNIQUE,
    kind         TEXT NOT NULL CHECK (kind IN ('message', 'decision', 'tool_call', 'mail', 'task')),
    words        tsvector NOT NULL DEFAULT '', -- [postgres]
    scope        TEXT NOT NULL,
    git_dir      TEXT,
    origin       TEXT,
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

-- A deleted thread stays as a tombstone: what comes late finds it. `life` counts how often it began.
CREATE TABLE thread (
    seq         BIGKEY,
    id          TEXT NOT NULL UNIQUE,
    scope       TEXT NOT NULL,
    git_dir     TEXT,
    origin      TEXT,
    key         TEXT NOT NULL,
    life        BIGINT NOT NULL,
    created_us  BIGINT NOT NULL,
    updated_us  BIGINT NOT NULL,
    deleted_us  BIGINT,
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
    git_dir     TEXT,
    origin      TEXT,
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

-- `vector` is its length, a float of 64 bits, and then its direction, floats of 32 bits; little-endian.
CREATE TABLE item_vector (
    seq       BIGKEY,
    item_seq  BIGINT NOT NULL REFERENCES item (seq) ON DELETE CASCADE,
    field     TEXT NOT NULL,
    vector    BYTES NOT NULL,
    UNIQUE (item_seq, field)
) STRICT;
