-- Claims: one worker gets the most urgent task that is ready.

-- Ready: open, or its snooze has ended; without a live holder; every task that it needs is closed; no open task below it.
-- name: ready
SELECT {columns:task}
FROM task t
WHERE t.scope = :scope AND t.repository = :repository AND t.state IN ('open', 'snoozed')
  AND (t.state = 'open' OR t.snoozed_until_us <= :now_us)
  AND (t.holder IS NULL OR {lease_over:t})
  AND (t.assignee IS NULL OR t.assignee = :assignee)
  AND (:kind = '' OR t.kind = :kind) AND (:source = '' OR t.source = :source)
  AND (:label = '' OR t.labels LIKE :label ESCAPE '!')
  AND NOT EXISTS (SELECT 1 FROM task_need n JOIN task d ON d.id = n.needs_id
                  WHERE n.task_id = t.id AND d.state <> 'closed')
  AND NOT EXISTS (SELECT 1 FROM task c WHERE c.parent_id = t.id AND c.state NOT IN ('closed', 'accepted'))
ORDER BY t.priority, t.created_us, t.id
LIMIT 1
{skip_locked}

-- The same without a lock. The caller checks whether a process that holds a task is alive.
-- name: ready_page
SELECT {columns:task}
FROM task t
WHERE t.scope = :scope AND t.repository = :repository AND t.state IN ('open', 'snoozed')
  AND (t.priority, t.created_us, t.id) > (:priority, :created_us, :id)
  AND (t.state = 'open' OR t.snoozed_until_us <= :now_us)
  AND (t.holder IS NULL OR t.holder LIKE 'p:%' OR {lease_over:t})
  AND (t.assignee IS NULL OR t.assignee = :assignee)
  AND (:kind = '' OR t.kind = :kind) AND (:source = '' OR t.source = :source)
  AND (:label = '' OR t.labels LIKE :label ESCAPE '!')
  AND NOT EXISTS (SELECT 1 FROM task_need n JOIN task d ON d.id = n.needs_id
                  WHERE n.task_id = t.id AND d.state <> 'closed')
  AND NOT EXISTS (SELECT 1 FROM task c WHERE c.parent_id = t.id AND c.state NOT IN ('closed', 'accepted'))
ORDER BY t.priority, t.created_us, t.id
LIMIT :limit

-- The state is not written, because SQLite would rewrite five indexes.
-- name: take
UPDATE task
SET {lease_set}, fence = fence + 1, updated_us = :now_us
WHERE id = :id AND fence = :fence AND state = 'open'
RETURNING id

-- name: wake
UPDATE task SET state = 'open', snoozed_until_us = NULL WHERE id = :id AND state = 'snoozed'
RETURNING id

-- name: blockers
SELECT d.id AS id, d.title AS title, d.state AS state, d.episode AS episode
FROM task_need n JOIN task d ON d.id = n.needs_id
WHERE n.task_id = :id AND d.state <> 'closed'
ORDER BY d.id
LIMIT :limit
