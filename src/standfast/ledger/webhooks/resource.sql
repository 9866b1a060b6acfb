-- Looking at events, the newest first: ids grow with time.

-- name: page
SELECT {columns:webhook_event}
FROM webhook_event
WHERE id < :after AND (:everywhere = 1 OR scope = :scope)
  AND (:state = '' OR state = :state) AND (:source = '' OR source = :source) AND (:kind = '' OR kind = :kind)
ORDER BY id DESC
LIMIT :limit

-- Events still to be handled, by their own index however many are done. (Joined with '', the id does not
-- tempt SQLite to walk the whole table in the order of its primary key.)
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
