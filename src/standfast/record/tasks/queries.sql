-- Tasks: pages and details.

-- Open and snoozed tasks, the most urgent first. A task whose snooze has ended counts as open.
-- name: live
SELECT {columns:task}
FROM task
WHERE scope = :scope AND repository = :repository AND state IN ('open', 'snoozed')
  AND (priority, created_us, id) > (:priority, :created_us, :id)
  AND (:state = '' OR (:state = 'open') = (state = 'open' OR snoozed_until_us <= :now_us))
  AND (:kind = '' OR kind = :kind) AND (:source = '' OR source = :source)
  AND (:label = '' OR labels LIKE :label ESCAPE '!') AND (:branch = '' OR branch = :branch)
  AND (:assignee = '' OR assignee = :assignee) AND (:session_id = '' OR session_id = :session_id)
  AND (:held = 0 OR holder IS NOT NULL)
ORDER BY priority, created_us, id
LIMIT :limit

-- name: live_everywhere
SELECT {columns:task}
FROM task
WHERE state IN ('open', 'snoozed')
  AND (scope, repository, priority, created_us, id) > (:scope, :repository, :priority, :created_us, :id)
  AND (:state = '' OR (:state = 'open') = (state = 'open' OR snoozed_until_us <= :now_us))
  AND (:kind = '' OR kind = :kind) AND (:source = '' OR source = :source)
  AND (:label = '' OR labels LIKE :label ESCAPE '!') AND (:branch = '' OR branch = :branch)
  AND (:assignee = '' OR assignee = :assignee) AND (:session_id = '' OR session_id = :session_id)
  AND (:held = 0 OR holder IS NOT NULL)
ORDER BY scope, repository, priority, created_us, id
LIMIT :limit

-- Closed or accepted tasks: the newest first.
-- name: settled
SELECT {columns:task}
FROM task
WHERE scope = :scope AND repository = :repository AND state = :state AND id < :id
  AND (:kind = '' OR kind = :kind) AND (:source = '' OR source = :source)
  AND (:label = '' OR labels LIKE :label ESCAPE '!') AND (:branch = '' OR branch = :branch)
  AND (:assignee = '' OR assignee = :assignee) AND (:session_id = '' OR session_id = :session_id)
  AND (:held = 0 OR holder IS NOT NULL)
ORDER BY id DESC
LIMIT :limit

-- name: any
SELECT {columns:task}
FROM task
WHERE id < :id AND (:everywhere = 1 OR (scope = :scope AND repository = :repository)) AND (:state = '' OR state = :state)
  AND (:kind = '' OR kind = :kind) AND (:source = '' OR source = :source)
  AND (:label = '' OR labels LIKE :label ESCAPE '!') AND (:branch = '' OR branch = :branch)
  AND (:assignee = '' OR assignee = :assignee) AND (:session_id = '' OR session_id = :session_id)
  AND (:held = 0 OR holder IS NOT NULL)
ORDER BY id DESC
LIMIT :limit

-- Tasks with tasks below them.
-- name: goals
SELECT {columns:task}
FROM task t
WHERE t.scope = :scope AND t.repository = :repository AND t.state IN ('open', 'snoozed')
  AND (t.priority, t.created_us, t.id) > (:priority, :created_us, :id)
  AND EXISTS (SELECT 1 FROM task c WHERE c.parent_id = t.id)
ORDER BY t.priority, t.created_us, t.id
LIMIT :limit

-- name: notes
SELECT id, task_id, text, actor, created_us
FROM task_note
WHERE task_id = :id
ORDER BY created_us DESC, id DESC
LIMIT :limit

-- name: episodes
SELECT id, title, state, episode
FROM task
WHERE scope = :scope AND repository = :repository AND fingerprint = :fingerprint
ORDER BY episode DESC
LIMIT :limit

-- name: latest_events
SELECT {columns:event}
FROM event
WHERE subject = :id
ORDER BY seq DESC
LIMIT :limit
