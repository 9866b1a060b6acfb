-- The bytes of artifacts as rows: PostgreSQL only, because another host must be able to resume.
-- Incomplete chunks are under the id of the new artifact, complete ones under their digest.

-- name: add
INSERT INTO artifact_chunk (digest, n, bytes) VALUES (:digest, :n, :bytes)
ON CONFLICT (digest, n) DO NOTHING

-- The caller that locks the first chunk of a digest holds the digest, until it commits; others wait here or at `hold`.
-- name: claim
INSERT INTO artifact_chunk (digest, n, bytes) VALUES (:digest, 0, :bytes)
ON CONFLICT (digest, n) DO NOTHING
RETURNING n

-- name: move
UPDATE artifact_chunk SET digest = :digest WHERE digest = :incoming

-- name: hold
SELECT n FROM artifact_chunk WHERE digest = :digest AND n = 0 {for_update}

-- name: drop
DELETE FROM artifact_chunk WHERE digest = :digest

-- name: page
SELECT n, bytes FROM artifact_chunk WHERE digest = :digest AND n >= :n ORDER BY n LIMIT :limit

-- name: unfinished
SELECT digest FROM artifact_chunk WHERE n = 0 AND digest LIKE 'art!_%' ESCAPE '!' ORDER BY digest LIMIT :limit

-- name: unreferenced
SELECT c.digest AS digest
FROM artifact_chunk c
WHERE c.n = 0 AND c.digest LIKE 'sha256:%'
  AND NOT EXISTS (SELECT 1 FROM artifact a WHERE a.digest = c.digest AND a.uri NOT LIKE 's3:%')
ORDER BY c.digest
LIMIT :limit

-- name: size
SELECT COALESCE(SUM(length(bytes)), 0) AS size_bytes, COUNT(*) AS chunks FROM artifact_chunk WHERE digest = :digest
