-- Effects: every change of state is a compare-and-set on the attempt, which is the fence.

-- The whole beginning in one statement: nothing is inserted unless the opening still owns its
-- session (no fence given: nobody's session), and only if the identity is not taken. Unless `beside` is 1, no
-- other effect of the session and no equal one of another session may be under way: they could be in doubt.
-- COALESCE keeps the index of all effects of the session out of it; SQLite uses a partial index only for a query
-- that repeats its condition.
-- name: insert
INSERT INTO effect (id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
                    idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us,
                    planned_us, first_dispatched_us, dispatched_us, updated_us, result_shape, git_dir, origin)
SELECT :id, :scope, :session_id, :node_id, :task_id, :tool, :key, :n, :by_hash, :intent_hash, :intent, :context, :state, :attempt,
       :idempotent_us, :holder, :actor, :lease_until_us, :lease_boot, :lease_mono_us, :lease_for_us,
       :now_us, :dispatched_us, :dispatched_us, :now_us, :result_shape, :git_dir, :origin
WHERE (CAST(:session_fence AS BIGINT) IS NULL
       OR EXISTS (SELECT 1 FROM session s
                  WHERE s.id = :session_id AND s.fence = :session_fence AND s.holder = :session_holder))
  AND (:beside = 1
       OR (NOT EXISTS (SELECT 1 FROM effect d
                       WHERE d.state = 'dispatched' AND d.state IN ('planned', 'dispatched')
                         AND COALESCE(d.session_id, '') = :session_id)
           AND NOT EXISTS (SELECT 1 FROM effect d
                           WHERE d.state = 'dispatched' AND d.tool = :tool AND d.by_hash = :by_hash
                             AND d.scope = :scope AND (:derived = 1 OR SUBSTR(d.key, 1, 3) = 'by:'))))
ON CONFLICT (scope, key) DO NOTHING
RETURNING id

-- name: by_key
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us, result_shape, git_dir, origin
FROM effect
WHERE scope = :scope AND key = :key

-- name: by_key_for_update
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us, result_shape, git_dir, origin
FROM effect
WHERE scope = :scope AND key = :key
{for_update}

-- What may be in doubt in a session: all that is under way in it, by the index of what is under way.
-- name: under_way
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us, result_shape, git_dir, origin
FROM effect
WHERE state = 'dispatched' AND state IN ('planned', 'dispatched') AND COALESCE(session_id, '') = :session_id
  AND id > :after
ORDER BY id
LIMIT :limit

-- The same tool and fields in another session, under way. Two keys of the callers' own are two things.
-- name: same_elsewhere
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us, result_shape, git_dir, origin
FROM effect
WHERE state = 'dispatched' AND tool = :tool AND by_hash = :by_hash AND scope = :scope
  AND COALESCE(session_id, '') <> :session_id AND (:derived = 1 OR SUBSTR(key, 1, 3) = 'by:')
ORDER BY planned_us, id
LIMIT :limit

-- The last time a program went on although this effect was in doubt.
-- name: proceeded
SELECT data FROM event WHERE subject = :id AND type = 'effect.proceeded' ORDER BY seq DESC LIMIT 1

-- The last time a person settled it.
-- name: resolved
SELECT state, data FROM event WHERE subject = :id AND type = 'effect.resolved' ORDER BY seq DESC LIMIT 1

-- name: session_key
SELECT key FROM session WHERE id = :id

-- In a fork: whether an ancestor began it before the cut, which the journal knows.
-- name: before_cut
SELECT e.id FROM effect e
WHERE e.scope = :scope AND e.key = :key
  AND COALESCE((SELECT MIN(event.seq) FROM event WHERE event.subject = e.id), 0) <= :cut_seq

-- name: by_id
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us, result_shape, git_dir, origin
FROM effect
WHERE id = :id

-- name: by_id_for_update
SELECT id, scope, session_id, node_id, task_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,
       idempotent_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, gave_up_us, result,
       artifact_id, external_ref, error, evidence, approval_id, successor_id, pruned_us, planned_us,
       first_dispatched_us, dispatched_us, ended_us, updated_us, result_shape, git_dir, origin
FROM effect
WHERE id = :id
{for_update}

-- Other words for the same thing, before anything was sent.
-- name: reword
UPDATE effect
SET intent = :intent, intent_hash = :intent_hash, context = :context, updated_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = :state
RETURNING id

-- The next attempt: from planned, from failed, or from a doubt that was settled. It belongs to the session that
-- sends it: that one is stopped if it is in doubt.
-- name: dispatch
UPDATE effect
SET state = 'dispatched', session_id = COALESCE(:session_id, session_id), node_id = COALESCE(:node_id, node_id), attempt = attempt + 1, intent = :intent, intent_hash = :intent_hash, context = :context,
    idempotent_us = :idempotent_us, holder = :holder, actor = :actor, lease_until_us = :lease_until_us,
    lease_boot = :lease_boot, lease_mono_us = :lease_mono_us, lease_for_us = :lease_for_us, gave_up_us = NULL,
    result_shape = :result_shape, error = NULL, first_dispatched_us = COALESCE(first_dispatched_us, :now_us), dispatched_us = :now_us,
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

-- A person corrects the result they gave, not the state.
-- name: correct
UPDATE effect
SET result = :result, artifact_id = NULL, evidence = :evidence, updated_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = 'acknowledged'
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
