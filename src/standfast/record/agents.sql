-- Agents. A row is written at the first use of a name. Stale and crashed are computed on each read.

-- The last-seen time.
-- name: seen
INSERT INTO agent (scope, name, kind, status, holder, first_seen_us, last_seen_us, git_dir, origin)
VALUES (:scope, :name, :kind, 'idle', :holder, :now_us, :now_us, :git_dir, :origin)
ON CONFLICT (scope, name) DO UPDATE
SET holder = excluded.holder, last_seen_us = excluded.last_seen_us, kind = COALESCE(agent.kind, excluded.kind)

-- name: add
INSERT INTO agent (scope, name, kind, status, holder, first_seen_us, last_seen_us, git_dir, origin)
VALUES (:scope, :name, NULL, 'idle', NULL, :now_us, :now_us, :git_dir, :origin)
ON CONFLICT (scope, name) DO NOTHING

-- name: by_name_for_update
SELECT {columns:agent}
FROM agent
WHERE scope = :scope AND name = :name
{for_update}

-- name: by_name
SELECT {columns:agent}
FROM agent
WHERE scope = :scope AND name = :name

-- name: change
UPDATE agent
SET kind = :kind, status = :status, status_why = :status_why, task_id = :task_id, config = :config,
    metadata = :metadata, holder = :holder, last_seen_us = :last_seen_us
WHERE scope = :scope AND name = :name
RETURNING name

-- name: page
SELECT {columns:agent}
FROM agent
WHERE (:everywhere = 1 OR scope = :scope) AND (scope > :after_scope OR (scope = :after_scope AND name > :after))
  AND (:kind = '' OR kind = :kind)
ORDER BY scope, name
LIMIT :limit

-- The task that the agent holds, as an actor or through its process: the last one, of any repository.
-- name: held_task
SELECT id, holder, lease_until_us, lease_boot, lease_mono_us, lease_for_us
FROM task
WHERE holder IN (:holder, :actor_holder) AND scope = :scope
ORDER BY updated_us DESC
LIMIT 1

-- name: held_session
SELECT id, holder, lease_until_us, lease_boot, lease_mono_us, lease_for_us
FROM session
WHERE holder IN (:holder, :actor_holder) AND scope = :scope AND state = 'active'
ORDER BY updated_us DESC
LIMIT 1

-- name: task
SELECT state FROM task WHERE id = :id

-- name: session
SELECT id FROM session WHERE scope = :scope AND key = :key
