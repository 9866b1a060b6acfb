-- Approvals: a person's yes or no to one intent of one effect, bound to its hash.
--
-- No row is locked before it is changed: each change is a compare-and-set on the state. (A lock
-- would also need the right to update what a role on PostgreSQL may only read.)

-- What was ever asked for these very bytes, and whatever is still open for this effect.
-- name: standing
SELECT id, scope, session_id, effect_id, gate, tool, intent_hash, state, requester, why, approver, rationale,
       requested_us, expires_us, answered_us, consumed_us, attempt
FROM approval
WHERE effect_id = :effect_id AND (intent_hash = :intent_hash OR state IN ('requested', 'granted'))
ORDER BY requested_us DESC, id DESC
LIMIT 50

-- name: request
INSERT INTO approval (id, scope, session_id, effect_id, gate, tool, intent_hash, state, requester, why,
                      requested_us, expires_us)
VALUES (:id, :scope, :session_id, :effect_id, :gate, :tool, :intent_hash, 'requested', :requester, :why,
        :now_us, :expires_us)
ON CONFLICT (effect_id, intent_hash) WHERE state IN ('requested', 'granted') DO NOTHING
RETURNING id, scope, session_id, effect_id, gate, tool, intent_hash, state, requester, why, approver, rationale,
          requested_us, expires_us, answered_us, consumed_us, attempt

-- name: answer
UPDATE approval
SET state = :state, approver = :approver, rationale = :rationale, answered_us = :now_us
WHERE id = :id AND state = 'requested' AND expires_us > :now_us
RETURNING id, scope, session_id, effect_id, gate, tool, intent_hash, state, requester, why, approver, rationale,
          requested_us, expires_us, answered_us, consumed_us, attempt

-- name: consume
UPDATE approval
SET state = 'consumed', consumed_us = :now_us, attempt = :attempt
WHERE id = :id AND state = 'granted' AND intent_hash = :intent_hash AND expires_us > :now_us
RETURNING id, scope, session_id, effect_id, gate, tool, intent_hash, state, requester, why, approver, rationale,
          requested_us, expires_us, answered_us, consumed_us, attempt

-- name: bind
UPDATE effect SET approval_id = :approval_id WHERE id = :effect_id

-- name: asked
SELECT id FROM approval WHERE effect_id = :effect_id LIMIT 1

-- name: expire
UPDATE approval
SET state = 'expired'
WHERE id = :id AND state IN ('requested', 'granted')
RETURNING id, scope, session_id, effect_id, gate, tool, intent_hash, state, requester, why, approver, rationale,
          requested_us, expires_us, answered_us, consumed_us, attempt

-- Readers see what is true now: nobody has to come by for a request to expire.
-- name: by_id
SELECT id, scope, session_id, effect_id, gate, tool, intent_hash,
       CASE WHEN state IN ('requested', 'granted') AND expires_us <= :now_us THEN 'expired' ELSE state END AS state,
       requester, why, approver, rationale, requested_us, expires_us, answered_us, consumed_us, attempt
FROM approval
WHERE id = :id

-- name: by_suffix
SELECT id, scope, session_id, effect_id, gate, tool, intent_hash,
       CASE WHEN state IN ('requested', 'granted') AND expires_us <= :now_us THEN 'expired' ELSE state END AS state,
       requester, why, approver, rationale, requested_us, expires_us, answered_us, consumed_us, attempt
FROM approval
WHERE id LIKE :pattern
LIMIT 2

-- name: page
SELECT id, scope, session_id, effect_id, gate, tool, intent_hash,
       CASE WHEN state IN ('requested', 'granted') AND expires_us <= :now_us THEN 'expired' ELSE state END AS state,
       requester, why, approver, rationale, requested_us, expires_us, answered_us, consumed_us, attempt
FROM approval
WHERE id < :after
  AND (:everywhere = 1 OR scope = :scope)
  AND (:state = ''
       OR CASE WHEN state IN ('requested', 'granted') AND expires_us <= :now_us THEN 'expired' ELSE state END = :state)
  AND (:session = ''
       OR session_id IN (SELECT s.id FROM session s WHERE s.id = :session OR (s.scope = :scope AND s.key = :session)))
ORDER BY id DESC
LIMIT :limit

-- What waits, by its own index however long the history is. (Joined with '', the id does not tempt
-- SQLite to walk the whole table in the order of its primary key.)
-- name: waiting
SELECT id, scope, session_id, effect_id, gate, tool, intent_hash, state, requester, why, approver, rationale,
       requested_us, expires_us, answered_us, consumed_us, attempt
FROM approval
WHERE state = 'requested' AND expires_us > :now_us AND id || '' < :after
  AND (:everywhere = 1 OR scope = :scope)
  AND (:session = ''
       OR session_id IN (SELECT s.id FROM session s WHERE s.id = :session OR (s.scope = :scope AND s.key = :session)))
ORDER BY id || '' DESC
LIMIT :limit

-- The effect a request is made for.
-- name: effect_by_id
SELECT id, scope, session_id, tool, key, intent_hash, state, attempt FROM effect WHERE id = :id

-- name: effect_by_suffix
SELECT id, scope, session_id, tool, key, intent_hash, state, attempt FROM effect WHERE id LIKE :pattern LIMIT 2

-- name: effect_by_key
SELECT id, scope, session_id, tool, key, intent_hash, state, attempt FROM effect WHERE scope = :scope AND key = :key

-- What a person is shown: the bytes, and where they come from.
-- name: question
SELECT e.intent, e.intent_hash, e.key, e.state, e.context, s.key AS session_key, s.agent, s.cwd
FROM effect e
LEFT JOIN session s ON s.id = e.session_id
WHERE e.id = :effect_id
