-- Tasks: pages and details. A page goes over what does not change while it is read.

-- What is not settled, the most urgent first. A snooze that is over counts as open.
-- name: live
SELECT id, scope, fingerprint, episode, state, reason, title, body, kind, source, priority, labels, branch, assignee,
       parent_id, session_id, result, occurrences, first_seen_us, last_seen_us, cool_down_us, snoozed_until_us,
       due_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, fence, created_us, updated_us,
       closed_us
FROM task
WHERE scope = :scope AND state IN ('open', 'snoozed')
  AND (priority, created_us, id) > (:priority, :created_us, :id)
  AND (:state = '' OR (:state = 'open') = (state = 'open' OR snoozed_until_us <= :now_us))
  AND (:kind = '' OR kind = :kind) AND (:source = '' OR source = :source)
  AND (:label = '' OR labels LIKE :label ESCAPE '!') AND (:branch = '' OR branch = :branch)
  AND (:assignee = '' OR assignee = :assignee) AND (:session_id = '' OR session_id = :session_id)
  AND (:held = 0 OR holder IS NOT NULL)
ORDER BY priority, created_us, id
LIMIT :limit

-- name: live_everywhere
SELECT id, scope, fingerprint, episode, state, reason, title, body, kind, source, priority, labels, branch, assignee,
       parent_id, session_id, result, occurrences, first_seen_us, last_seen_us, cool_down_us, snoozed_until_us,
       due_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, fence, created_us, updated_us,
       closed_us
FROM task
WHERE state IN ('open', 'snoozed')
  AND (scope, priority, created_us, id) > (:scope, :priority, :created_us, :id)
  AND (:state = '' OR (:state = 'open') = (state = 'open' OR snoozed_until_us <= :now_us))
  AND (:kind = '' OR kind = :kind) AND (:source = '' OR source = :source)
  AND (:label = '' OR labels LIKE :label ESCAPE '!') AND (:branch = '' OR branch = :branch)
  AND (:assignee = '' OR assignee = :assignee) AND (:session_id = '' OR session_id = :session_id)
  AND (:held = 0 OR holder IS NOT NULL)
ORDER BY scope, priority, created_us, id
LIMIT :limit

-- What is closed, or accepted: the newest first.
-- name: settled
SELECT id, scope, fingerprint, episode, state, reason, title, body, kind, source, priority, labels, branch, assignee,
       parent_id, session_id, result, occurrences, first_seen_us, last_seen_us, cool_down_us, snoozed_until_us,
       due_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, fence, created_us, updated_us,
       closed_us
FROM task
WHERE scope = :scope AND state = :state AND id < :id
  AND (:kind = '' OR kind = :kind) AND (:source = '' OR source = :source)
  AND (:label = '' OR labels LIKE :label ESCAPE '!') AND (:branch = '' OR branch = :branch)
  AND (:assignee = '' OR assignee = :assignee) AND (:session_id = '' OR session_id = :session_id)
  AND (:held = 0 OR holder IS NOT NULL)
ORDER BY id DESC
LIMIT :limit

-- name: any
SELECT id, scope, fingerprint, episode, state, reason, title, body, kind, source, priority, labels, branch, assignee,
       parent_id, session_id, result, occurrences, first_seen_us, last_seen_us, cool_down_us, snoozed_until_us,
       due_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, fence, created_us, updated_us,
       closed_us
FROM task
WHERE id < :id AND (:everywhere = 1 OR scope = :scope) AND (:state = '' OR state = :state)
  AND (:kind = '' OR kind = :kind) AND (:source = '' OR source = :source)
  AND (:label = '' OR labels LIKE :label ESCAPE '!') AND (:branch = '' OR branch = :branch)
  AND (:assignee = '' OR assignee = :assignee) AND (:session_id = '' OR session_id = :session_id)
  AND (:held = 0 OR holder IS NOT NULL)
ORDER BY id DESC
LIMIT :limit

-- Tasks with tasks below them.
-- name: goals
SELECT id, scope, fingerprint, episode, state, reason, title, body, kind, source, priority, labels, branch, assignee,
       parent_id, session_id, result, occurrences, first_seen_us, last_seen_us, cool_down_us, snoozed_until_us,
       due_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, fence, created_us, updated_us,
       closed_us
FROM task t
WHERE t.scope = :scope AND t.state IN ('open', 'snoozed')
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
WHERE scope = :scope AND fingerprint = :fingerprint
ORDER BY episode DESC
LIMIT :limit

-- name: latest_events
SELECT seq, time_us, occurred_us, scope, actor, holder, source, type, subject, session_id, state, stream, version,
       summary, data
FROM event
WHERE subject = :id
ORDER BY seq DESC
LIMIT :limit
