-- Approvals: a person's answer to one question, bound to its hash.
--
-- Each change is a compare-and-set on the state, without a lock before it. On PostgreSQL a lock needs the right to
-- update, which the role of an agent lacks.

-- Every approval of this effect that may count now, with its question.
-- name: standing
SELECT {columns:approval}, question
FROM approval
WHERE effect_id = :effect_id AND state IN ('requested', 'granted', 'denied')
ORDER BY requested_us DESC, id DESC
LIMIT 50

-- The part of the question about the session: its key, its agent and its newest open decision.
-- name: asking
SELECT s.key, s.agent, d.what, d.why
FROM session s
LEFT JOIN decision d ON d.id = (SELECT o.id FROM decision o WHERE o.session_id = s.id AND o.state = 'open'
                                ORDER BY o.created_us DESC, o.id DESC LIMIT 1)
WHERE s.id = :session_id

-- name: request
INSERT INTO approval (id, scope, session_id, effect_id, gate, tool, intent_hash, question, question_hash, attempts,
                      attempts_used, state, requester, why, requested_us, expires_us, git_dir, origin)
VALUES (:id, :scope, :session_id, :effect_id, :gate, :tool, :intent_hash, :question, :question_hash, :attempts,
        0, 'requested', :requester, :why, :requested_us, :expires_us, (SELECT e.git_dir FROM effect e WHERE e.id = :effect_id),
        (SELECT e.origin FROM effect e WHERE e.id = :effect_id))
RETURNING {columns:approval}

-- name: answer
UPDATE approval
SET state = :state, approver = :approver, rationale = :rationale, method = :method, answered_us = :now_us
WHERE id = :id AND state = 'requested' AND expires_us > :now_us
RETURNING {columns:approval}

-- One dispatch uses one attempt; the last one consumes the grant. The number comes from the question that was
-- just built, not from the row.
-- name: consume [sqlite]
UPDATE approval
SET attempts_used = attempts_used + 1,
    state = CASE WHEN attempts_used + 1 >= :attempts THEN 'consumed' ELSE 'granted' END,
    consumed_us = :now_us, attempt = :attempt
WHERE id = :id AND state = 'granted' AND question_hash = :question_hash AND attempts_used < :attempts
  AND expires_us > :now_us
RETURNING {columns:approval}

-- On PostgreSQL the role of an agent may not change the row. The trigger effect_grant does when the effect is dispatched,
-- and this statement returns the values that it will write.
-- name: consume [postgres]
SELECT id, scope, session_id, effect_id, gate, tool, intent_hash, question_hash,
       CASE WHEN attempts_used + 1 >= :attempts THEN 'consumed' ELSE 'granted' END AS state, requester, why, approver,
       rationale, method, requested_us, expires_us, answered_us, CAST(:now_us AS bigint) AS consumed_us,
       CAST(:attempt AS bigint) AS attempt, attempts, attempts_used + 1 AS attempts_used
FROM approval
WHERE id = :id AND state = 'granted' AND question_hash = :question_hash AND attempts_used < :attempts
  AND expires_us > :now_us

-- name: bind
UPDATE effect SET approval_id = :approval_id WHERE id = :effect_id

-- name: asked
SELECT id FROM approval WHERE effect_id = :effect_id LIMIT 1

-- name: expire
UPDATE approval
SET state = 'expired'
WHERE id = :id AND state IN ('requested', 'granted')
RETURNING {columns:approval}

-- name: by_id
SELECT {columns:approval}
FROM approval
WHERE id = :id

-- name: page
SELECT {columns:approval}
FROM approval
WHERE id < :after
  AND (:everywhere = 1 OR scope = :scope) AND {here}
  AND (:state = ''
       OR CASE WHEN state IN ('requested', 'granted') AND expires_us <= :now_us THEN 'expired' ELSE state END = :state)
  AND (:session = ''
       OR session_id IN (SELECT s.id FROM session s WHERE s.id = :session OR (s.scope = :scope AND s.key = :session)))
ORDER BY id DESC
LIMIT :limit

-- Open requests, by their partial index. `id || ''` keeps SQLite away from the primary key, which would read the whole
-- table.
-- name: waiting
SELECT {columns:approval}
FROM approval
WHERE state = 'requested' AND expires_us > :now_us AND id || '' < :after
  AND (:everywhere = 1 OR scope = :scope) AND {here}
  AND (:session = ''
       OR session_id IN (SELECT s.id FROM session s WHERE s.id = :session OR (s.scope = :scope AND s.key = :session)))
ORDER BY id || '' DESC
LIMIT :limit

-- name: effect_by_key
SELECT id, scope, session_id, tool, key, intent, intent_hash, context, state, attempt FROM effect WHERE scope = :scope AND key = :key

-- Lock the effect of a request on PostgreSQL, so that two callers that ask at the same time make one request.
-- name: held_effect
UPDATE effect SET approval_id = approval_id
WHERE id = :id
RETURNING id, scope, session_id, tool, key, intent, intent_hash, context, state, attempt

-- The question that an approver reads, and whether its effect still has that intent.
-- name: question
SELECT a.question, e.intent_hash, e.state
FROM approval a
LEFT JOIN effect e ON e.id = a.effect_id
WHERE a.id = :id
