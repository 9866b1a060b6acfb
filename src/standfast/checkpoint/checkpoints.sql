-- Checkpoints: folds of the messages of a node. All of them can be deleted and made again.

-- name: add
INSERT INTO checkpoint (id, session_id, node_id, from_position, to_position, cursor, summary, data, cache_keys,
                        versions, size_bytes, created_us)
VALUES (:id, :session_id, :node_id, :from_position, :to_position, :cursor, :summary, :data, :cache_keys,
        :versions, :size_bytes, :now_us)
RETURNING {columns:checkpoint}

-- name: trim
DELETE FROM checkpoint
WHERE node_id = :node_id AND id NOT IN (
    SELECT id FROM checkpoint WHERE node_id = :node_id ORDER BY to_position DESC, created_us DESC, id DESC LIMIT :keep)

-- name: newest
SELECT {columns:checkpoint}
FROM checkpoint
WHERE node_id = :node_id AND to_position < :before
ORDER BY to_position DESC, created_us DESC, id DESC
LIMIT :limit

-- name: page
SELECT c.id AS id, c.session_id AS session_id, c.node_id AS node_id, c.from_position AS from_position,
       c.to_position AS to_position, c.cursor AS cursor, c.summary AS summary, c.data AS data,
       c.cache_keys AS cache_keys, c.versions AS versions, c.size_bytes AS size_bytes, c.created_us AS created_us
FROM checkpoint c LEFT JOIN session s ON s.id = c.session_id
WHERE (:everywhere = 1 OR s.scope = :scope) AND (:session_id = '' OR c.session_id = :session_id)
  AND (:after = '' OR (c.created_us, c.id) < (SELECT a.created_us, a.id FROM checkpoint a WHERE a.id = :after))
ORDER BY c.created_us DESC, c.id DESC
LIMIT :limit

-- name: delete_all
DELETE FROM checkpoint
WHERE (:session_id = '' OR session_id = :session_id)
  AND (:everywhere = 1 OR session_id IN (SELECT id FROM session WHERE scope = :scope))
RETURNING id

-- name: parent
SELECT parent_id FROM session WHERE id = :id

-- name: node
SELECT id, session_id, parent_id, name, first_position, next_position FROM node WHERE id = :id

-- name: child
SELECT id, session_id, parent_id, name, first_position, next_position
FROM node
WHERE session_id = :session_id AND parent_id = :parent_id AND name = :name

-- name: said_after
SELECT position, role, format, content, occurred_us
FROM message
WHERE node_id = :node_id AND position > :after AND position < :before
ORDER BY position
LIMIT :limit

-- name: said_last
SELECT position, role, format, content, occurred_us
FROM message
WHERE node_id = :node_id AND position > :after AND position < :before
ORDER BY position DESC
LIMIT :limit
