-- Gates: patterns of commands that need a person's yes, or to be an effect.

-- name: add
INSERT INTO gate (id, scope, pattern, need, why, actor, created_us)
VALUES (:id, :scope, :pattern, :need, :why, :actor, :now_us)
ON CONFLICT (scope, pattern) WHERE removed_us IS NULL DO NOTHING
RETURNING id, scope, pattern, need, why, actor, created_us, removed_us

-- name: remove
UPDATE gate
SET removed_us = :now_us
WHERE id = :id AND removed_us IS NULL
RETURNING id, scope, pattern, need, why, actor, created_us, removed_us

-- name: by_pattern
SELECT id, scope, pattern, need, why, actor, created_us, removed_us
FROM gate
WHERE scope = :scope AND pattern = :pattern AND removed_us IS NULL

-- name: by_suffix
SELECT id, scope, pattern, need, why, actor, created_us, removed_us
FROM gate
WHERE id LIKE :pattern AND removed_us IS NULL
LIMIT 2

-- name: page
SELECT id, scope, pattern, need, why, actor, created_us, removed_us
FROM gate
WHERE removed_us IS NULL AND id > :after AND (:everywhere = 1 OR scope = :scope OR scope = '')
ORDER BY id
LIMIT :limit

-- name: count
SELECT count(*) AS n FROM gate WHERE removed_us IS NULL

-- name: store_id
SELECT value FROM meta WHERE key = 'store_id'
