-- Gates: patterns of commands that need a person's approval or must be effects.

-- name: add
INSERT INTO gate (id, scope, repository, pattern, need, via, why, actor, created_us, git_dir, origin)
VALUES (:id, :scope, :repository, :pattern, :need, :via, :why, :actor, :now_us, :git_dir, :origin)
ON CONFLICT (scope, repository, pattern) WHERE removed_us IS NULL DO NOTHING
RETURNING {columns:gate}

-- name: remove
UPDATE gate
SET removed_us = :now_us
WHERE id = :id AND removed_us IS NULL
RETURNING {columns:gate}

-- NULL ends the pause.
-- name: pause
UPDATE gate
SET paused_until_us = :until_us
WHERE id = :id AND removed_us IS NULL
RETURNING {columns:gate}

-- name: by_pattern
SELECT {columns:gate}
FROM gate
WHERE scope = :scope AND repository = :repository AND pattern = :pattern AND removed_us IS NULL

-- The gates that apply here: by the id of the repository and by either part of its label, so that adding or renaming a
-- remote removes no gate. A gate of no repository applies in every repository of its scope; without a scope, everywhere.
-- name: page
SELECT {columns:gate}
FROM gate
WHERE removed_us IS NULL AND id > :after
  AND (:paused = 1 OR paused_until_us IS NULL OR paused_until_us <= :now_us)
  AND (:everywhere = 1 OR (repository = '' AND scope IN ('', :scope))
       OR (scope = :scope AND (repository = :repository OR git_dir = :git_dir OR origin = :origin)))
ORDER BY id
LIMIT :limit

-- name: count
SELECT count(*) AS n FROM gate WHERE removed_us IS NULL

-- name: store_id
SELECT value FROM meta WHERE key = 'store_id'
