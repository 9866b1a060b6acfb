-- The parts of a brief that the recovery report does not have. `total` counts all rows, so that a section can say how
-- many it leaves out.

-- name: standing
SELECT id, scope, repository, git_dir, origin, what, why, actor, created_us, count(*) OVER () AS total
FROM decision
WHERE state = 'standing' AND state IN ('open', 'standing') 
  AND (:everywhere = 1 OR (repository = '' AND scope IN ('', :scope))
       OR (scope = :scope AND repository = :repository))
ORDER BY created_us, id
LIMIT :limit

-- name: recent
SELECT id, scope, repository, git_dir, origin, what, outcome, state, actor, created_us, count(*) OVER () AS total
FROM decision
WHERE scope = :scope AND repository = :repository AND state IN ('done', 'failed')
ORDER BY created_us DESC, id DESC
LIMIT :limit

-- Ordered by id, which grows with time, because no index orders the decisions of all scopes by time.
-- name: recent_anywhere
SELECT id, scope, repository, git_dir, origin, what, outcome, state, actor, created_us, count(*) OVER () AS total
FROM decision
WHERE state IN ('done', 'failed')
ORDER BY id DESC
LIMIT :limit

-- name: mail
SELECT id, scope, sender, subject, body, provenance, sent_us, count(*) OVER () AS total
FROM mail
WHERE (:everywhere = 1 OR scope = :scope) AND box = :box AND ended_us IS NULL
  AND (expires_us IS NULL OR expires_us > :now_us)
ORDER BY priority, seq
LIMIT :limit

-- Tasks that the agent holds, tasks assigned to it, then free tasks.
-- name: tasks
SELECT id, scope, repository, git_dir, origin, title, priority, labels, assignee, actor, holder, occurrences,
       last_seen_us, count(*) OVER () AS total
FROM task
WHERE (:everywhere = 1 OR (scope = :scope AND repository = :repository)) AND state IN ('open', 'snoozed')
  AND (state = 'open' OR snoozed_until_us <= :now_us)
  AND (holder IS NULL OR actor = :agent)
  AND (assignee IS NULL OR assignee = :agent)
ORDER BY CASE WHEN holder IS NOT NULL THEN 0 WHEN assignee IS NOT NULL THEN 1 ELSE 2 END, priority, created_us, id
LIMIT :limit

-- name: checkpoint
SELECT c.id AS id, c.summary AS summary, c.to_position AS to_position, c.created_us AS created_us, s.key AS key,
       s.id AS session_id, s.scope AS scope, s.git_dir AS git_dir, s.origin AS origin, 1 AS total
FROM (SELECT id, key, scope, git_dir, origin FROM session WHERE scope = :scope AND {here} ORDER BY updated_us DESC LIMIT 20) AS s
     JOIN checkpoint c ON c.session_id = s.id
ORDER BY c.created_us DESC, c.id DESC
LIMIT 1

-- name: checkpoint_anywhere
SELECT c.id AS id, c.summary AS summary, c.to_position AS to_position, c.created_us AS created_us, s.key AS key,
       s.id AS session_id, s.scope AS scope, s.git_dir AS git_dir, s.origin AS origin, 1 AS total
FROM checkpoint c JOIN session s ON s.id = c.session_id
ORDER BY c.id DESC
LIMIT 1

-- name: facts
SELECT {columns:state}, git_dir, origin, count(*) OVER () AS total
FROM state
WHERE scope = :scope AND repository = :repository AND namespace = '' AND (expires_us IS NULL OR expires_us > :now_us)
ORDER BY key
LIMIT :limit

-- name: facts_anywhere
SELECT {columns:state}, git_dir, origin, count(*) OVER () AS total
FROM state
WHERE namespace = '' AND (expires_us IS NULL OR expires_us > :now_us)
ORDER BY scope, repository, key
LIMIT :limit

-- name: letter
SELECT subject FROM dead_letter WHERE id = :id
