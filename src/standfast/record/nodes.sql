-- The nodes of a session, by parent and name.

-- name: add
INSERT INTO node (id, session_id, parent_id, name, title, first_position, next_position, created_us)
VALUES (:id, :session_id, :parent_id, :name, :title, :first_position, :first_position, :now_us)
ON CONFLICT (session_id, parent_id, name) DO NOTHING
RETURNING {columns:node}

-- name: node
SELECT {columns:node}
FROM node
WHERE session_id = :session_id AND parent_id = :parent_id AND name = :name

-- name: nodes
SELECT {columns:node}
FROM node
WHERE session_id = :session_id
ORDER BY id
LIMIT :limit

-- The last position of a message in a node before a cut.
-- name: said_before
SELECT position
FROM message
WHERE node_id = :node_id
  AND COALESCE((SELECT MIN(event.seq) FROM event WHERE event.subject = message.id), 0) <= :cut_seq
ORDER BY position DESC
LIMIT 1
