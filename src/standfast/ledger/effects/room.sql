-- Looking at effects.

-- name: page
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us
FROM effect
WHERE id < :after
  AND (:everywhere = 1 OR scope = :scope)
  AND (:state = '' OR state = :state)
  AND (:tool = '' OR tool = :tool)
  AND (:session = ''
       OR session_id IN (SELECT s.id FROM session s WHERE s.id = :session OR (s.scope = :scope AND s.key = :session)))
ORDER BY id DESC
LIMIT :limit

-- What may be in doubt; by its own index, however long the history is.
-- name: dispatched
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us
FROM effect
WHERE state = 'dispatched'
  AND id < :after
  AND (:everywhere = 1 OR scope = :scope)
  AND (:tool = '' OR tool = :tool)
  AND (:session = ''
       OR session_id IN (SELECT s.id FROM session s WHERE s.id = :session OR (s.scope = :scope AND s.key = :session)))
ORDER BY id DESC
LIMIT :limit

-- name: by_suffix
SELECT id FROM effect WHERE id LIKE :pattern LIMIT 2

-- The numbers given to one caller's key by `again`.
-- name: last_number
SELECT MAX(n) AS n FROM effect WHERE scope = :scope AND (key = :key OR key LIKE :numbered ESCAPE '!')

-- name: session
SELECT id, key FROM session WHERE id = :session OR (scope = :scope AND key = :session)
