-- Effects: every change of state is a compare-and-set on the attempt, which is the fence.

-- The whole beginning in one statement: nothing is inserted unless the opening still owns its
-- session (no fence given: nobody's session), and only if the identity is not taken.
-- name: insert
INSERT INTO effect (id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
                    idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us,
                    planned_us, first_dispatched_us, dispatched_us, updated_us)
SELECT :id, :scope, :session_id, :node_id, :task_id, :tool, :key, :n, :by_hash, :intent_hash, :intent, :context, :state, :attempt,
       :idempotent_us, :holder, :actor, :lease_until_us, :lease_boot, :lease_mono_us, :lease_for_us,
       :now_us, :dispatched_us, :dispatched_us, :now_us
WHERE CAST(:session_fence AS BIGINT) IS NULL
   OR EXISTS (SELECT 1 FROM session s
              WHERE s.id = :session_id AND s.fence = :session_fence AND s.holder = :session_holder)
ON CONFLICT (scope, key) DO NOTHING
RETURNING id

-- name: by_key
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us
FROM effect
WHERE scope = :scope AND key = :key

-- name: by_key_for_update
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us
FROM effect
WHERE scope = :scope AND key = :key
{for_update}

-- In a fork: whether an ancestor began it before the cut, which the journal knows.
-- name: before_cut
SELECT e.id FROM effect e
WHERE e.scope = :scope AND e.key = :key
  AND COALESCE((SELECT MIN(event.seq) FROM event WHERE event.subject = e.id), 0) <= :cut_seq

-- name: by_id
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us
FROM effect
WHERE id = :id

-- name: by_id_for_update
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us
FROM effect
WHERE id = :id
{for_update}

-- Other words for the same thing, before anything was sent.
-- name: reword
UPDATE effect
SET intent = :intent, intent_hash = :intent_hash, updated_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = :state
RETURNING id

-- The next attempt: from planned, from failed, or from a doubt that was settled.
-- name: dispatch
UPDATE effect
SET state = 'dispatched', attempt = attempt + 1, intent = :intent, intent_hash = :intent_hash, context = :context,
    idempotent_us = :idempotent_us, holder = :holder, actor = :actor, lease_until_us = :lease_until_us,
    lease_boot = :lease_boot, lease_mono_us = :lease_mono_us, lease_for_us = :lease_for_us, gave_up_us = NULL,
    error = NULL, first_dispatched_us = COALESCE(first_dispatched_us, :now_us), dispatched_us = :now_us,
    ended_us = NULL, updated_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = :state
RETURNING id, attempt

-- name: acknowledge
UPDATE effect
SET state = 'acknowledged', result = :result, artifact_id = :artifact_id,
    external_ref = COALESCE(:external_ref, external_ref), evidence = :evidence, error = NULL, holder = NULL, lease_until_us = NULL, lease_boot = NULL, lease_mono_us = NULL,
    lease_for_us = NULL, gave_up_us = NULL, ended_us = {now_us}, updated_us = {now_us}
WHERE id = :id AND attempt = :attempt AND state = 'dispatched'
RETURNING id, tool

-- name: fail
UPDATE effect
SET state = 'failed', error = :error, evidence = :evidence, holder = NULL, lease_until_us = NULL, lease_boot = NULL,
    lease_mono_us = NULL, lease_for_us = NULL, gave_up_us = NULL, ended_us = :now_us, updated_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = 'dispatched'
RETURNING id

-- Nobody is at it any more, and nobody knows how it ended.
-- name: give_up
UPDATE effect
SET error = :error, holder = NULL, lease_until_us = NULL, lease_boot = NULL, lease_mono_us = NULL, lease_for_us = NULL,
    gave_up_us = :now_us, updated_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = 'dispatched' AND gave_up_us IS NULL
RETURNING id

-- name: compensate
UPDATE effect
SET state = 'compensated', successor_id = :successor_id, ended_us = :now_us, updated_us = :now_us
WHERE id = :id AND state = 'acknowledged'
RETURNING id

-- name: supersede
UPDATE effect
SET state = 'superseded', successor_id = :successor_id, error = :reason, ended_us = :now_us, updated_us = :now_us
WHERE id = :id AND state = 'planned'
RETURNING id

-- name: store_id
SELECT value FROM meta WHERE key = 'store_id'
