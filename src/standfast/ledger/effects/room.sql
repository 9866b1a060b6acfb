-- Looking at effects.

-- name: page
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us, git_dir, origin
FROM effect
WHERE id < :after
  AND (:everywhere = 1 OR scope = :scope) AND {here}
  AND (:state = '' OR state = :state)
  AND (:tool = '' OR tool = :tool)
ORDER BY id DESC
LIMIT :limit

-- name: page_of_session
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us, git_dir, origin
FROM effect
WHERE session_id = :session_id
  AND id < :after
  AND (:state = '' OR state = :state)
  AND (:tool = '' OR tool = :tool)
ORDER BY id DESC
LIMIT :limit

-- What may be in doubt; by its own index, however long the history is. SQLite uses a partial index only
-- for a query that repeats its condition.
-- name: dispatched
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us, git_dir, origin
FROM effect
WHERE state = 'dispatched' AND state IN ('planned', 'dispatched')
  AND (:everywhere = 1 OR scope = :scope) AND {here}
  AND (:tool = '' OR tool = :tool)
  AND (:session_id = '' OR session_id = :session_id)
ORDER BY updated_us DESC
LIMIT :limit
