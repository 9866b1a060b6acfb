-- Tasks: found, changed, closed. Every change is on a row that this transaction has locked.

-- The newest episode. All older ones are closed.
-- name: by_fingerprint
SELECT {columns:task}
FROM task
WHERE scope = :scope AND repository = :repository AND fingerprint = :fingerprint
ORDER BY episode DESC
LIMIT 1

-- Only one transaction at a time reports, closes or reopens a problem. Without this lock, PostgreSQL would report a race
-- as an error of the unique index, and a report could miss the cool-down of a closing that is not committed yet. SQLite
-- has one writer anyway.
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

-- Clear the holder. The fence grows only if another caller does it, so that the old holder is refused.
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
