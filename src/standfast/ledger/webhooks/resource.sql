-- Lists of events, the newest first: ids grow with time.

-- name: page
SELECT {columns:webhook_event}
FROM webhook_event
WHERE id < :after AND (:everywhere = 1 OR scope = :scope)
  AND (:state = '' OR state = :state) AND (:source = '' OR source = :source) AND (:kind = '' OR kind = :kind)
ORDER BY id DESC
LIMIT :limit

-- Events that are not handled, by their partial index. `id || ''` keeps SQLite away from the primary key, which would
-- read the whole table.
-- name: waiting
SELECT {columns:webhook_event}
FROM webhook_event
WHERE state = 'received' AND id || '' < :after AND (:everywhere = 1 OR scope = :scope)
  AND (:source = '' OR source || '' = :source) AND (:kind = '' OR kind = :kind)
ORDER BY id || '' DESC
LIMIT :limit

-- A dead event has an open dead letter, and those are few.
-- name: dead
SELECT {columns:webhook_event:w}
FROM dead_letter d JOIN webhook_event w ON w.id = d.subject
WHERE d.settled_us IS NULL AND d.kind = 'webhook' AND w.state = 'dead' AND w.id || '' < :after
  AND (:everywhere = 1 OR d.scope || '' = :scope)
  AND (:source = '' OR w.source = :source) AND (:kind = '' OR w.kind = :kind)
ORDER BY w.id || '' DESC
LIMIT :limit
