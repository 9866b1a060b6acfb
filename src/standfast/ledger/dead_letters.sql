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

-- name: open_of
SELECT {columns:dead_letter}
FROM dead_letter
WHERE subject = :subject AND settled_us IS NULL

-- Used if there is no open one. It reads dead letters from the newest on, and those are few.
-- name: latest_of
SELECT {columns:dead_letter}
FROM dead_letter
WHERE subject = :subject
ORDER BY id DESC
LIMIT 1

-- Open dead letters, by their partial index. `id || ''` and `scope || ''` keep the planner away from the indexes of all
-- dead letters.
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
