-- Finding sessions: by key, by id, in pages.

-- name: by_key
SELECT {columns:session}
FROM session
WHERE scope = :scope AND key = :key

-- name: by_id
SELECT {columns:session}
FROM session
WHERE id = :id

-- name: named
SELECT id, key FROM session WHERE id = :session OR (scope = :scope AND key = :session) LIMIT 1

-- name: by_suffix
SELECT {columns:session}
FROM session
WHERE id LIKE :pattern
ORDER BY id
LIMIT 2

-- name: by_id_for_update
SELECT {columns:session}
FROM session
WHERE id = :id
{for_update}

-- name: page
SELECT {columns:session}
FROM session
WHERE scope = :scope AND (:state = '' OR state = :state) AND {here}
  AND (updated_us < :before_us OR (updated_us = :before_us AND id < :before_id))
ORDER BY updated_us DESC, id DESC
LIMIT :limit

-- name: page_everywhere
SELECT {columns:session}
FROM session
WHERE (:state = '' OR state = :state)
  AND (updated_us < :before_us OR (updated_us = :before_us AND id < :before_id))
ORDER BY updated_us DESC, id DESC
LIMIT :limit

-- Active sessions with a holder. The caller checks whether each holder is alive.
-- name: held
SELECT {columns:session}
FROM session
WHERE state = 'active' AND holder IS NOT NULL AND (:everywhere = 1 OR scope = :scope) AND {here}
  AND (updated_us, id) > (:after_us, :after_id)
ORDER BY updated_us, id
LIMIT :limit
