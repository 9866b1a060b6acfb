-- Dead letters: one open per subject, and those that were settled.

-- name: bury
INSERT INTO dead_letter (id, scope, subject, kind, reason, attempts, created_us, git_dir, origin)
VALUES (:id, :scope, :subject, :kind, :reason, :attempts, :now_us, :git_dir, :origin)
ON CONFLICT (subject) WHERE settled_us IS NULL DO NOTHING
RETURNING {columns:dead_letter}

-- name: settle
UPDATE dead_letter
SET settled_us = :now_us, settlement = :settlement, settled_by = :by, note = :note
WHERE subject = :subject AND settled_us IS NULL
RETURNING {columns:dead_letter}

-- name: by_id
SELECT {columns:dead_letter}
FROM dead_letter
WHERE id = :id

-- name: by_suffix
SELECT id FROM dead_letter WHERE id LIKE :pattern LIMIT 2

-- name: open_of
SELECT {columns:dead_letter}
FROM dead_letter
WHERE subject = :subject AND settled_us IS NULL

-- Only asked where there is no open one: it walks back through the letters, which are few.
-- name: latest_of
SELECT {columns:dead_letter}
FROM dead_letter
WHERE subject = :subject
ORDER BY id DESC
LIMIT 1

-- What waits, by its own index however many were settled. (Joined with '', neither the id nor the scope
-- tempts an engine to walk the whole history.)
-- name: open_page
SELECT {columns:dead_letter}
FROM dead_letter
WHERE settled_us IS NULL AND id || '' < :after
  AND (:everywhere = 1 OR scope || '' = :scope) AND (:kind = '' OR kind = :kind)
ORDER BY id || '' DESC
LIMIT :limit

-- name: page
SELECT {columns:dead_letter}
FROM dead_letter
WHERE id < :after AND (:everywhere = 1 OR scope = :scope) AND (:kind = '' OR kind = :kind)
ORDER BY id DESC
LIMIT :limit
