-- Consumers: named cursors. A cursor moves only from the value that its reader has read.

-- name: get
SELECT scope, name, stream, cursor, version, updated_us
FROM consumer
WHERE scope = :scope AND name = :name AND stream = :stream

-- name: first
INSERT INTO consumer (scope, name, stream, cursor, version, updated_us, git_dir, origin)
VALUES (:scope, :name, :stream, :cursor, :version, :now_us, :git_dir, :origin)
ON CONFLICT (scope, name, stream) DO NOTHING
RETURNING cursor

-- name: move
UPDATE consumer SET cursor = :cursor, version = :version, updated_us = :now_us
WHERE scope = :scope AND name = :name AND stream = :stream AND cursor = :before
RETURNING cursor

-- name: seek
INSERT INTO consumer (scope, name, stream, cursor, version, updated_us, git_dir, origin)
VALUES (:scope, :name, :stream, :cursor, :version, :now_us, :git_dir, :origin)
ON CONFLICT (scope, name, stream) DO UPDATE SET cursor = :cursor, version = :version, updated_us = :now_us
RETURNING scope, name, stream, cursor, version, updated_us

-- name: forget
DELETE FROM consumer
WHERE scope = :scope AND name = :name AND stream = :stream
RETURNING scope, name, stream, cursor, version, updated_us

-- name: page
SELECT c.scope AS scope, c.name AS name, c.stream AS stream, c.cursor AS cursor, c.version AS version,
       c.updated_us AS updated_us, CASE WHEN c.stream <> '' THEN COALESCE(s.version, 0) - c.version END AS behind
FROM consumer c LEFT JOIN stream s ON s.scope = c.scope AND s.name = c.stream
WHERE c.scope = :scope AND (c.name, c.stream) > (:name, :stream)
ORDER BY c.name, c.stream
LIMIT :limit
