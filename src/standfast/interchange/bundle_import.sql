-- name: found
SELECT id, state, reason FROM session WHERE id = :id

-- name: finish
UPDATE session SET state = :state, reason = :reason, updated_us = :now_us, ended_us = :ended_us
WHERE id = :id
RETURNING {columns:session}

-- name: artifact
SELECT session_id, name, kind FROM artifact WHERE id = :id

-- name: effect_taken
SELECT e.key AS key FROM effect e
WHERE e.session_id = :session_id AND e.scope = :history
  AND EXISTS (SELECT 1 FROM effect o WHERE o.scope = :scope AND o.key = e.key)
LIMIT 1

-- name: take_effects
UPDATE effect SET scope = :scope WHERE session_id = :session_id AND scope = :history

-- name: take_decisions
UPDATE decision SET scope = :scope WHERE session_id = :session_id AND scope = :history

-- If an equal artifact is in the scope already, the imported one stays in the history: the session has its id.
-- name: take_artifacts
UPDATE artifact SET scope = :scope
WHERE session_id = :session_id AND scope = :history
  AND NOT EXISTS (SELECT 1 FROM artifact o WHERE o.scope = :scope AND o.digest = artifact.digest
                  AND o.name = artifact.name AND o.kind = artifact.kind)
