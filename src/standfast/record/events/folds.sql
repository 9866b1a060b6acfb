-- Snapshots: states that can be computed again from their streams. Deleting them loses only time.

-- name: nearest
SELECT version, data
FROM snapshot
WHERE scope = :scope AND fold = :fold AND stream = :stream AND version <= :version
ORDER BY version DESC
LIMIT 1

-- name: add
INSERT INTO snapshot (scope, fold, stream, version, data, created_us, git_dir, origin)
VALUES (:scope, :fold, :stream, :version, :data, :now_us, :git_dir, :origin)
ON CONFLICT (scope, fold, stream, version) DO NOTHING

-- name: trim
DELETE FROM snapshot
WHERE scope = :scope AND fold = :fold AND stream = :stream AND version <= (
    SELECT version FROM snapshot
    WHERE scope = :scope AND fold = :fold AND stream = :stream
    ORDER BY version DESC
    LIMIT 1 OFFSET :keep)

-- name: delete
DELETE FROM snapshot
WHERE scope = :scope AND (CAST(:fold AS text) IS NULL OR fold = :fold)
  AND (CAST(:stream AS text) IS NULL OR stream = :stream)
RETURNING version
