-- Artifacts: one row for each name of some bytes, which have a digest.

-- name: add
INSERT INTO artifact (id, scope, session_id, name, kind, digest, uri, size_bytes, retention, actor, created_us,
                      git_dir, origin)
VALUES (:id, :scope, :session_id, :name, :kind, :digest, :uri, :size_bytes, :retention, :actor, :now_us, :git_dir,
        :origin)
ON CONFLICT (scope, digest, name, kind) DO NOTHING
RETURNING {columns:artifact}

-- name: same
SELECT {columns:artifact}
FROM artifact
WHERE scope = :scope AND digest = :digest AND name = :name AND kind = :kind
{for_update}

-- name: retain
UPDATE artifact SET retention = :retention WHERE id = :id
RETURNING {columns:artifact}

-- Put again, to another bucket or out of one.
-- name: move
UPDATE artifact SET uri = :uri WHERE id = :id
RETURNING {columns:artifact}

-- The newest artifact of a name: several may have the same name.
-- name: by_name
SELECT {columns:artifact}
FROM artifact
WHERE scope = :scope AND name = :name
ORDER BY created_us DESC, id DESC
LIMIT 1

-- name: page
SELECT {columns:artifact}
FROM artifact
WHERE (:everywhere = 1 OR scope = :scope OR session_id = :session_id) AND {here}
  AND (:session_id = '' OR session_id = :session_id)
  AND (:kind = '' OR kind = :kind)
  AND (:name = '' OR name = :name)
  AND (:after = '' OR (created_us, id) < (SELECT created_us, id FROM artifact WHERE id = :after))
ORDER BY created_us DESC, id DESC
LIMIT :limit

-- Every row of every scope, to compare rows with bytes.
-- name: total
SELECT COUNT(*) AS n FROM artifact

-- name: walk
SELECT {columns:artifact}
FROM artifact
WHERE id > :after
ORDER BY id
LIMIT :limit

-- Whether a step or an effect keeps its result in this artifact.
-- name: used
SELECT id FROM step WHERE artifact_id = :id
UNION ALL
SELECT id FROM effect WHERE artifact_id = :id
LIMIT 1

-- name: remove
DELETE FROM artifact WHERE id = :id
RETURNING {columns:artifact}

-- name: referenced
SELECT id FROM artifact WHERE digest = :digest AND uri NOT LIKE 's3:%' LIMIT 1

-- Expired artifacts: scratch after a day, and those of a deleted session.
-- name: outlived
SELECT a.id AS id
FROM artifact a
WHERE a.created_us < :before_us
  AND (a.retention = 'scratch'
       OR (a.retention = 'session' AND NOT EXISTS (SELECT 1 FROM session s WHERE s.id = a.session_id)))
  AND NOT EXISTS (SELECT 1 FROM step t WHERE t.artifact_id = a.id)
  AND NOT EXISTS (SELECT 1 FROM effect e WHERE e.artifact_id = a.id)
ORDER BY a.id
LIMIT :limit
