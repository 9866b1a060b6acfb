-- Effects: every change of state is a compare-and-set on the attempt, which is the fencing token.

-- Begin in one statement. It inserts only if the key is free and the opening still owns its session. Without a session
-- the fence is NULL. Unless `beside` is 1, no other effect of the session and no equal effect of another session may be
-- dispatched, because it could be in doubt. While a gap is open, this effect itself may have been sent in the gap.
-- COALESCE keeps the planner away from the index of all effects of the session. SQLite uses a partial index only for a
-- query that repeats its condition.
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
       OR (NOT EXISTS (SELECT 1 FROM meta m WHERE m.key = 'gap')
           AND NOT EXISTS (SELECT 1 FROM effect d
                       WHERE d.state = 'dispatched' AND d.state IN ('planned', 'dispatched')
                         AND COALESCE(d.session_id, '') = :session_id)
           AND NOT EXISTS (SELECT 1 FROM effect d
                           WHERE d.state = 'dispatched' AND d.tool = :tool AND d.by_hash = :by_hash
                             AND d.scope = :scope AND (:derived = 1 OR SUBSTR(d.key, 1, 3) = 'by:'))))
ON CONFLICT (scope, key) DO NOTHING
RETURNING id

-- name: by_key
SELECT {columns:effect}
FROM effect
WHERE scope = :scope AND key = :key

-- name: by_key_for_update
SELECT {columns:effect}
FROM effect
WHERE scope = :scope AND key = :key
{for_update}

-- Effects of a session that may be in doubt: all dispatched ones, by their index.
-- name: under_way
SELECT {columns:effect}
FROM effect
WHERE state = 'dispatched' AND state IN ('planned', 'dispatched') AND COALESCE(session_id, '') = :session_id
  AND id > :after
ORDER BY id
LIMIT :limit

-- A dispatched effect with the same tool and fields in another session. Two keys chosen by callers are two effects.
-- name: same_elsewhere
SELECT {columns:effect}
FROM effect
WHERE state = 'dispatched' AND tool = :tool AND by_hash = :by_hash AND scope = :scope
  AND COALESCE(session_id, '') <> :session_id AND (:derived = 1 OR SUBSTR(key, 1, 3) = 'by:')
  AND id > :after
ORDER BY id
LIMIT :limit

-- The last time that a session continued in spite of this doubt; in a fork also an ancestor, before the fork.
-- name: proceeded
SELECT data FROM event
WHERE subject = :id AND type = 'effect.proceeded' AND (session_id = :session_id OR seq <= :cut_seq)
ORDER BY seq DESC
LIMIT 1

-- The last journal row that says that a person settled it.
-- name: resolved
SELECT state, data FROM event WHERE subject = :id AND type = 'effect.resolved' ORDER BY seq DESC LIMIT 1

-- name: session_key
SELECT key FROM session WHERE id = :id

-- name: session_created
SELECT created_us FROM session WHERE id = :id

-- In a fork: whether the journal has a start by an ancestor before the fork.
-- name: before_cut
SELECT e.id FROM effect e
WHERE e.scope = :scope AND e.key = :key
  AND COALESCE((SELECT MIN(event.seq) FROM event WHERE event.subject = e.id), 0) <= :cut_seq

-- name: by_id
SELECT {columns:effect}
FROM effect
WHERE id = :id

-- name: by_id_for_update
SELECT {columns:effect}
FROM effect
WHERE id = :id
{for_update}

-- Other arguments for an effect that was not sent.
-- name: reword
UPDATE effect
SET intent = :intent, intent_hash = :intent_hash, context = :context, updated_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = :state
RETURNING id

-- The next attempt, from planned, failed or a settled doubt. It belongs to the session that sends it, because a doubt
-- stops that session.
-- name: dispatch
UPDATE effect
SET state = 'dispatched', session_id = COALESCE(:session_id, session_id), node_id = COALESCE(:node_id, node_id),
    attempt = attempt + 1, intent = :intent, intent_hash = :intent_hash, context = :context,
    idempotent_us = :idempotent_us, {lease_set}, gave_up_us = NULL, result_shape = :result_shape, error = NULL,
    first_dispatched_us = COALESCE(first_dispatched_us, :now_us), dispatched_us = :now_us, ended_us = NULL,
    updated_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = :state
RETURNING id, attempt

-- name: acknowledge
UPDATE effect
SET state = 'acknowledged', result = :result, artifact_id = :artifact_id,
    external_ref = COALESCE(:external_ref, external_ref), evidence = :evidence, error = NULL, {lease_none},
    gave_up_us = NULL, ended_us = {now_us}, updated_us = {now_us}
WHERE id = :id AND attempt = :attempt AND state = 'dispatched'
RETURNING id, tool

-- name: fail
UPDATE effect
SET state = 'failed', error = :error, evidence = :evidence, {lease_none}, gave_up_us = NULL, ended_us = :now_us,
    updated_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = 'dispatched'
RETURNING id

-- Release the lease: no live process runs it, and its outcome is unknown.
-- name: give_up
UPDATE effect
SET error = :error, {lease_none}, gave_up_us = :now_us, updated_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = 'dispatched' AND gave_up_us IS NULL
RETURNING id

-- An attempt that may have been sent in a gap, of which the store has no record.
-- name: sent_in_gap
UPDATE effect
SET state = 'dispatched', attempt = attempt + 1, error = :error, {lease_none}, gave_up_us = :now_us,
    first_dispatched_us = COALESCE(first_dispatched_us, :from_us), dispatched_us = :from_us, ended_us = NULL,
    updated_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = :state
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
