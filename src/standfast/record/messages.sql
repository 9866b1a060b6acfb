-- Messages: one position each, counted by their node; never changed.

-- name: next_position
UPDATE node SET next_position = next_position + 1 WHERE id = :node_id RETURNING next_position - 1 AS position

-- Locked before a key is looked up, so that two concurrent calls with one key store one message.
-- name: lock_node
SELECT id FROM node WHERE id = :node_id {for_update}

-- name: by_key
SELECT {columns:message}
FROM message
WHERE node_id = :node_id AND key = :key AND position < :before

-- name: say
INSERT INTO message (id, session_id, node_id, position, role, format, content, hash, key, actor, created_us,
                     occurred_us)
VALUES (:id, :session_id, :node_id, :position, :role, :format, :content, :hash, :key, :actor, :created_us,
        :occurred_us)

-- name: preview
UPDATE session SET preview = :preview WHERE id = :session_id AND preview IS NULL

-- name: last
SELECT {columns:message}
FROM message
WHERE node_id = :node_id AND position < :before
ORDER BY position DESC
LIMIT :limit

-- name: after
SELECT {columns:message}
FROM message
WHERE node_id = :node_id AND position > :after AND position < :before
ORDER BY position
LIMIT :limit
