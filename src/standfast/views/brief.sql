-- What a starting agent is told beside what is unsettled: the recovery report has that.

-- name: standing
SELECT id, what, why, created_us
FROM decision
WHERE state = 'standing' AND state IN ('open', 'standing') AND scope IN (:scope, '')
ORDER BY created_us, id
LIMIT :limit

-- name: recent
SELECT id, what, outcome, state, COALESCE(agent, actor) AS who, created_us
FROM decision
WHERE scope = :scope AND state IN ('done', 'failed')
ORDER BY created_us DESC, id DESC
LIMIT :limit

-- name: mail
SELECT id, sender, subject, body, sent_us
FROM mail
WHERE scope = :scope AND box = :box AND ended_us IS NULL AND (expires_us IS NULL OR expires_us > :now_us)
ORDER BY priority, seq
LIMIT :limit

-- What the agent holds, what is assigned to it, then what is free to take.
-- name: tasks
SELECT id, title, priority, labels, assignee, actor, holder, occurrences, last_seen_us
FROM task
WHERE scope = :scope AND state IN ('open', 'snoozed') AND (state = 'open' OR snoozed_until_us <= :now_us)
  AND (holder IS NULL OR actor = :agent)
  AND (assignee IS NULL OR assignee = :agent)
ORDER BY CASE WHEN holder IS NOT NULL THEN 0 WHEN assignee IS NOT NULL THEN 1 ELSE 2 END, priority, created_us, id
LIMIT :limit

-- name: checkpoint
SELECT c.id AS id, c.summary AS summary, c.to_position AS to_position, c.created_us AS created_us, s.key AS key
FROM (SELECT id, key FROM session WHERE scope = :scope ORDER BY updated_us DESC LIMIT 20) AS s
     JOIN checkpoint c ON c.session_id = s.id
ORDER BY c.created_us DESC, c.id DESC
LIMIT 1
