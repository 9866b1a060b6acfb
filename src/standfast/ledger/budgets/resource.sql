-- Budgets and holds. Rows of several budgets are locked and changed in the order of their ids, so that two
-- callers never wait for each other.

-- name: add
INSERT INTO budget (id, scope, git_dir, origin, name, parent, per, window_us, action,
                    max_tokens, max_microusd, max_calls, max_duration_us,
                    held_tokens, held_microusd, held_calls, held_duration_us,
                    spent_tokens, spent_microusd, spent_calls, spent_duration_us, actor, created_us, updated_us)
VALUES (:id, :scope, :git_dir, :origin, :name, :parent, :per, :window_us, :action,
        :max_tokens, :max_microusd, :max_calls, :max_duration_us,
        0, 0, 0, 0, 0, 0, 0, 0, :actor, :now_us, :now_us)
ON CONFLICT (scope, name) WHERE removed_us IS NULL DO NOTHING
RETURNING {columns:budget}

-- name: change
UPDATE budget
SET parent = :parent, per = :per, action = :action, max_tokens = :max_tokens, max_microusd = :max_microusd,
    max_calls = :max_calls, max_duration_us = :max_duration_us, actor = :actor, updated_us = :now_us
WHERE id = :id AND removed_us IS NULL
RETURNING {columns:budget}

-- name: remove
UPDATE budget
SET removed_us = :now_us, actor = :actor
WHERE id = :id AND removed_us IS NULL
RETURNING {columns:budget}

-- name: by_name
SELECT {columns:budget}
FROM budget
WHERE scope = :scope AND name = :name AND removed_us IS NULL

-- name: by_name_for_update
SELECT {columns:budget}
FROM budget
WHERE scope = :scope AND name = :name AND removed_us IS NULL
{for_update}

-- name: page
SELECT {columns:budget}
FROM budget
WHERE removed_us IS NULL AND scope = :scope AND name > :after
ORDER BY name
LIMIT :limit

-- The budgets of up to four subjects, and those around them.
-- name: chain
WITH RECURSIVE chain (id, parent) AS (
    SELECT id, parent
    FROM budget
    WHERE scope = :scope AND name IN (:subject, :session, :agent, :everything) AND removed_us IS NULL
    UNION
    SELECT around.id, around.parent
    FROM budget AS around JOIN chain ON around.name = chain.parent
    WHERE around.scope = :scope AND around.removed_us IS NULL
)
SELECT {columns:budget}
FROM budget
WHERE id IN (SELECT id FROM chain)
ORDER BY id
{for_update}

-- name: new_window
UPDATE budget
SET window_us = :window_us, spent_tokens = 0, spent_microusd = 0, spent_calls = 0, spent_duration_us = 0
WHERE id = :id AND window_us < :window_us

-- The limit is part of the statement, so that no caller takes what another caller has just taken.
-- name: take
UPDATE budget
SET held_tokens = held_tokens + :most_tokens, held_microusd = held_microusd + :most_microusd,
    held_calls = held_calls + :most_calls, held_duration_us = held_duration_us + :most_duration_us
WHERE id = :id
  AND (max_tokens IS NULL OR spent_tokens + held_tokens + :most_tokens <= max_tokens)
  AND (max_microusd IS NULL OR spent_microusd + held_microusd + :most_microusd <= max_microusd)
  AND (max_calls IS NULL OR spent_calls + held_calls + :most_calls <= max_calls)
  AND (max_duration_us IS NULL OR spent_duration_us + held_duration_us + :most_duration_us <= max_duration_us)
RETURNING id

-- name: give_back
UPDATE budget
SET held_tokens = held_tokens - :most_tokens, held_microusd = held_microusd - :most_microusd,
    held_calls = held_calls - :most_calls, held_duration_us = held_duration_us - :most_duration_us,
    spent_tokens = spent_tokens + :spent_tokens, spent_microusd = spent_microusd + :spent_microusd,
    spent_calls = spent_calls + :spent_calls, spent_duration_us = spent_duration_us + :spent_duration_us
WHERE id = :id

-- name: hold
INSERT INTO hold (id, scope, git_dir, origin, subject, budgets, session_id, key, n, hash, state, holder, actor,
                  lease_until_us, lease_boot, lease_mono_us, lease_for_us,
                  most_tokens, most_microusd, most_calls, most_duration_us, note, created_us)
VALUES (:id, :scope, :git_dir, :origin, :subject, :budgets, :session_id, :key, :n, :hash, 'held', :holder, :actor,
        :lease_until_us, :lease_boot, :lease_mono_us, :lease_for_us,
        :most_tokens, :most_microusd, :most_calls, :most_duration_us, :note, :now_us)
ON CONFLICT (scope, key, n) DO NOTHING
RETURNING {columns:hold}

-- name: end_hold
UPDATE hold
SET state = :state, spent_tokens = :spent_tokens, spent_microusd = :spent_microusd, spent_calls = :spent_calls,
    spent_duration_us = :spent_duration_us, note = COALESCE(:note, note), settled_by = :by, ended_us = :now_us,
    {lease_none}
WHERE id = :id AND state = 'held'
RETURNING {columns:hold}

-- name: give_up
UPDATE hold
SET {lease_none}, note = COALESCE(:note, note)
WHERE id = :id AND state = 'held'
RETURNING {columns:hold}

-- name: hold_by_id_for_update
SELECT {columns:hold}
FROM hold
WHERE id = :id
{for_update}

-- name: hold_by_key
SELECT {columns:hold}
FROM hold
WHERE scope = :scope AND key = :key
ORDER BY n DESC
LIMIT 1

-- Open holds are few. The partial index `hold_open` has them.
-- name: held
SELECT {columns:hold}
FROM hold
WHERE scope = :scope AND state = 'held' AND budgets LIKE :budget AND id > :after
ORDER BY id
LIMIT :limit

-- name: holds
SELECT {columns:hold}
FROM hold
WHERE scope = :scope AND budgets LIKE :budget AND id < :after
ORDER BY id DESC
LIMIT :limit
