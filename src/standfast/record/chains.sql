-- Chains: messages that name the one before them, and the value that names the last.

-- name: by_native
SELECT node_id, position, native, content FROM message WHERE native = :native

-- name: behind
SELECT node_id, position, native, content
FROM message
WHERE node_id = :node_id AND position < :before
ORDER BY position DESC
LIMIT :limit

-- name: at
SELECT position, content
FROM message
WHERE node_id = :node_id AND position >= :first AND position <= :last
ORDER BY position

-- name: heads
SELECT session.id, session.updated_us, state.value, state.expires_us
FROM session
     JOIN state ON state.scope = session.scope AND state.repository = '' AND state.namespace = session.id
               AND state.key = :key
WHERE session.scope = :scope
  AND (session.updated_us < :before_us OR (session.updated_us = :before_us AND session.id < :before_id))
ORDER BY session.updated_us DESC, session.id DESC
LIMIT :limit
