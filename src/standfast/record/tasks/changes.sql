-- Tasks: found, changed, closed. Every change is on a row that this transaction has locked.

-- The newest episode: the only one that may not be closed.
-- name: by_fingerprint
SELECT {columns:task}
FROM task
WHERE scope = :scope AND repository = :repository AND fingerprint = :fingerprint
ORDER BY episode DESC
LIMIT 1

-- One sighting, closing or reopening of a problem at a time. The unique indexes alone would do, but
-- on PostgreSQL a race is then reported as an error, and a return could miss the cool-down of a closing
-- that is just being committed. SQLite has one writer anyway.
-- name: alone [sqlite]
SELECT 1 AS alone

-- name: alone [postgres]
SELECT pg_advisory_xact_lock(hashtextextended(:name, 0)) IS NULL AS alone

-- name: change
UPDATE task
SET state = :state, reason = :reason, title = :title, body = :body, priority = :priority, labels = :labels,
    branch = :branch, assignee = :assignee, parent_id = :parent_id, cool_down_us = :cool_down_us,
    snoozed_until_us = :snoozed_until_us, due_us = :due_us, closed_us = :closed_us, updated_us = :now_us
WHERE id = :id AND fence = :fence
RETURNING id

-- name: close
UPDATE task
SET state = 'closed', reason = :reason, result = :result, cool_down_us = :cool_down_us, snoozed_until_us = NULL,
    closed_us = :now_us, updated_us = :now_us, actor = :actor, fence = fence + :grow,
    {lease_none}
WHERE id = :id AND fence = :fence AND state <> 'closed'
RETURNING id

-- Clear the holder; the fence grows only if another caller ends the hold, so that the old holder is refused.
-- name: let_go
UPDATE task
SET {lease_none},
    fence = fence + :grow, updated_us = :now_us
WHERE id = :id AND fence = :fence
RETURNING id

-- name: note
INSERT INTO task_note (id, task_id, text, actor, created_us)
VALUES (:id, :task_id, :text, :actor, :now_us)
RETURNING id
