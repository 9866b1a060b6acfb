-- Looking at events, the newest first: ids grow with time.

-- name: page
SELECT id, scope, source, event_id, kind, hash, payload, state, result, error, deliveries, attempts, attempts_max,
       ready_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, fence, received_us, ended_us
FROM webhook_event
WHERE id < :after AND (:everywhere = 1 OR scope = :scope)
  AND (:state = '' OR state = :state) AND (:source = '' OR source = :source) AND (:kind = '' OR kind = :kind)
ORDER BY id DESC
LIMIT :limit

-- What is still to be handled, by its own index however many are done. (Joined with '', the id does not
-- tempt SQLite to walk the whole table in the order of its primary key.)
-- name: waiting
SELECT id, scope, source, event_id, kind, hash, payload, state, result, error, deliveries, attempts, attempts_max,
       ready_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, fence, received_us, ended_us
FROM webhook_event
WHERE state = 'received' AND id || '' < :after AND (:everywhere = 1 OR scope = :scope)
  AND (:source = '' OR source || '' = :source) AND (:kind = '' OR kind = :kind)
ORDER BY id || '' DESC
LIMIT :limit

-- A dead event has an open dead letter, and those are few.
-- name: dead
SELECT w.id, w.scope, w.source, w.event_id, w.kind, w.hash, w.payload, w.state, w.result, w.error, w.deliveries,
       w.attempts, w.attempts_max, w.ready_us, w.holder, w.actor, w.lease_until_us, w.lease_boot, w.lease_mono_us,
       w.lease_for_us, w.fence, w.received_us, w.ended_us
FROM dead_letter d JOIN webhook_event w ON w.id = d.subject
WHERE d.settled_us IS NULL AND d.kind = 'webhook' AND w.state = 'dead' AND w.id || '' < :after
  AND (:everywhere = 1 OR d.scope || '' = :scope)
  AND (:source = '' OR w.source = :source) AND (:kind = '' OR w.kind = :kind)
ORDER BY w.id || '' DESC
LIMIT :limit
