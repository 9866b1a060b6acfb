-- Streams: an append locks the row of its stream until the commit.

-- name: advance
INSERT INTO stream (scope, name, version, updated_us, git_dir, origin)
VALUES (:scope, :name, :count, :now_us, :git_dir, :origin)
ON CONFLICT (scope, name) DO UPDATE SET version = stream.version + :count, updated_us = :now_us
RETURNING version

-- Locks the row, and creates it first, so that two first appends take turns too.
-- name: hold
INSERT INTO stream (scope, name, version, updated_us, git_dir, origin)
VALUES (:scope, :name, 0, :now_us, :git_dir, :origin)
ON CONFLICT (scope, name) DO UPDATE SET version = stream.version
RETURNING version

-- name: keyed
SELECT version, type, time_us, data
FROM event
WHERE subject = :subject AND scope = :scope AND stream = :stream
ORDER BY seq
LIMIT :limit
