-- Lists of effects.

-- name: page
SELECT {columns:effect}
FROM effect
WHERE id < :after
  AND (:everywhere = 1 OR scope = :scope) AND {here}
  AND (:state = '' OR state = :state)
  AND (:tool = '' OR tool = :tool)
ORDER BY id DESC
LIMIT :limit

-- name: page_of_session
SELECT {columns:effect}
FROM effect
WHERE session_id = :session_id
  AND id < :after
  AND (:state = '' OR state = :state)
  AND (:tool = '' OR tool = :tool)
ORDER BY id DESC
LIMIT :limit

-- Effects that may be in doubt, by a partial index, so that the cost does not grow with the history. SQLite uses a
-- partial index only for a query that repeats its condition.
-- name: dispatched
SELECT {columns:effect}
FROM effect
WHERE state = 'dispatched' AND state IN ('planned', 'dispatched')
  AND (:everywhere = 1 OR scope = :scope) AND {here}
  AND (:tool = '' OR tool = :tool)
  AND (:session_id = '' OR session_id = :session_id)
ORDER BY updated_us DESC
LIMIT :limit
