-- Conversations: the messages of a session's root node.

-- name: home
SELECT session.id AS session_id, session.scope, session.git_dir, session.origin, session.key, session.parent_id, session.created_us,
       node.id AS node_id, node.first_position, CASE WHEN session.preview IS NULL THEN 1 ELSE 0 END AS unnamed
FROM session JOIN node ON node.session_id = session.id AND node.parent_id = '' AND node.name = ''
WHERE session.scope = :scope AND session.key = :key

-- name: home_by_id
SELECT session.id AS session_id, session.scope, session.git_dir, session.origin, session.key, session.parent_id, session.created_us,
       node.id AS node_id, node.first_position, CASE WHEN session.preview IS NULL THEN 1 ELSE 0 END AS unnamed
FROM session JOIN node ON node.session_id = session.id AND node.parent_id = '' AND node.name = ''
WHERE session.id = :id

-- The new session has no holder, so it never counts as crashed, and any process may open it.
-- name: add_session
INSERT INTO session (id, scope, key, state, reason, agent, openings, actor, fence, created_us, updated_us, ended_us,
                     git_dir, origin)
VALUES (:id, :scope, :key, 'completed', NULL, :agent, 0, :actor, 0, :now_us, :now_us, :now_us, :git_dir, :origin)
ON CONFLICT (scope, key) DO NOTHING

-- Sets the preview once. If no process has the session open, its `updated_us` is that of its last message, to a second.
-- name: touch
UPDATE session
SET preview = COALESCE(preview, :preview), updated_us = CASE WHEN holder IS NULL THEN :now_us ELSE updated_us END
WHERE id = :id
  AND ((preview IS NULL AND CAST(:preview AS TEXT) IS NOT NULL) OR (holder IS NULL AND updated_us < :now_us - 1000000))

-- name: lock_node
SELECT id, next_position FROM node WHERE id = :node_id {for_update}

-- name: reserve
UPDATE node SET next_position = next_position + :count WHERE id = :node_id
RETURNING next_position - :count AS position

-- name: add
INSERT INTO message (id, session_id, node_id, position, role, format, content, hash, native, actor, created_us,
                     occurred_us)
VALUES (:id, :session_id, :node_id, :position, :role, 'json', :content, :hash, :native, :actor, :now_us, :now_us)

-- An item that was retracted after a fork was made is still in the fork.
-- name: newest
SELECT id, position, role, format, content
FROM message
WHERE node_id = :node_id AND position >= :first AND position < :before
  AND (retracted_us IS NULL OR retracted_us > :kept_us)
ORDER BY position DESC
LIMIT :limit

-- The same with fewer columns.
-- name: contents
SELECT role, format, content
FROM message
WHERE node_id = :node_id AND position >= :first AND position < :before
  AND (retracted_us IS NULL OR retracted_us > :kept_us)
ORDER BY position DESC
LIMIT :limit

-- name: cleared
SELECT value FROM state
WHERE scope = :scope AND repository = '' AND namespace = :session_id AND key = :key AND expires_us IS NULL

-- name: created
SELECT created_us FROM session WHERE id = :id

-- name: cleared_before
SELECT seq FROM event
WHERE subject = :session_id AND type = 'session.cleared' AND time_us <= :time_us
LIMIT 1

-- name: retract
UPDATE message SET retracted_us = :now_us
WHERE node_id = :node_id AND position >= :position AND retracted_us IS NULL
RETURNING id
