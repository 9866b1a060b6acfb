-- Limits on what agents may use: tokens, money (millionths of a US dollar), calls and time.

-- One limit of a subject: agent:NAME, session:KEY, task:ID, all, or a name of a group. `max_…` is NULL where nothing is
-- limited. Held and spent amounts are counted in every unit. `window_us` is the start of the hour, day, week or month
-- that `spent_…` belongs to. `parent` is the name of the budget around it. A removed budget stays, because holds name it.
CREATE TABLE budget (
    id                 TEXT NOT NULL PRIMARY KEY,
    scope              TEXT NOT NULL,
    git_dir            TEXT,
    origin             TEXT,
    name               TEXT NOT NULL,
    parent             TEXT,
    per                TEXT CHECK (per IN ('hour', 'day', 'week', 'month')),
    window_us          BIGINT NOT NULL,
    action             TEXT NOT NULL CHECK (action IN ('warn', 'block')),
    max_tokens         BIGINT,
    max_microusd       BIGINT,
    max_calls          BIGINT,
    max_duration_us    BIGINT,
    held_tokens        BIGINT NOT NULL CHECK (held_tokens >= 0),
    held_microusd      BIGINT NOT NULL CHECK (held_microusd >= 0),
    held_calls         BIGINT NOT NULL CHECK (held_calls >= 0),
    held_duration_us   BIGINT NOT NULL CHECK (held_duration_us >= 0),
    spent_tokens       BIGINT NOT NULL,
    spent_microusd     BIGINT NOT NULL,
    spent_calls        BIGINT NOT NULL,
    spent_duration_us  BIGINT NOT NULL,
    actor              TEXT NOT NULL,
    created_us         BIGINT NOT NULL,
    updated_us         BIGINT NOT NULL,
    removed_us         BIGINT
) STRICT;
CREATE UNIQUE INDEX budget_current ON budget (scope, name) WHERE removed_us IS NULL;

-- What one call may use, reserved before it. `budgets` has the ids that it counts in, in order. `in doubt` is never
-- stored: it is a held row whose holder is gone. `n` counts the calls under one key.
CREATE TABLE hold (
    id                 TEXT NOT NULL PRIMARY KEY,
    scope              TEXT NOT NULL,
    git_dir            TEXT,
    origin             TEXT,
    subject            TEXT NOT NULL,
    budgets            TEXT NOT NULL,
    session_id         TEXT,
    key                TEXT,
    n                  BIGINT NOT NULL,
    hash               TEXT NOT NULL,
    state              TEXT NOT NULL CHECK (state IN ('held', 'settled', 'released')),
    LEASE,
    most_tokens        BIGINT NOT NULL,
    most_microusd      BIGINT NOT NULL,
    most_calls         BIGINT NOT NULL,
    most_duration_us   BIGINT NOT NULL,
    spent_tokens       BIGINT,
    spent_microusd     BIGINT,
    spent_calls        BIGINT,
    spent_duration_us  BIGINT,
    note               TEXT,
    settled_by         TEXT,
    created_us         BIGINT NOT NULL,
    ended_us           BIGINT,
    UNIQUE (scope, key, n)
) STRICT;
CREATE INDEX hold_open ON hold (scope, id) WHERE state = 'held';
CREATE INDEX hold_held ON hold (holder) WHERE holder IS NOT NULL;

-- A model call is a row of `usage` with its prompt and its response, which are messages.
ALTER TABLE usage ADD COLUMN context_tokens BIGINT;
ALTER TABLE usage ADD COLUMN prompt_id TEXT;
ALTER TABLE usage ADD COLUMN response_id TEXT;
ALTER TABLE usage ADD COLUMN hold_id TEXT;
ALTER TABLE usage ADD COLUMN price TEXT;
