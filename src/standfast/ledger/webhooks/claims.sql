-- Claims of events. Each change compares the fence of a row that its transaction has locked.

-- name: by_event
SELECT {columns:webhook_event}
FROM webhook_event
WHERE scope = :scope AND source = :source AND event_id = :event_id

-- The event that has waited longest, if it is ready and has no live holder. None while a gap is open, because a lost
-- session may have handled it.
-- name: ready
SELECT {columns:webhook_event}
FROM webhook_event w
WHERE w.scope = :scope AND w.state = 'received' AND w.ready_us <= :now_us
  AND (w.holder IS NULL OR {lease_over:w})
  AND (:source = '' OR w.source = :source) AND (:kind = '' OR w.kind = :kind)
  AND NOT EXISTS (SELECT 1 FROM meta m WHERE m.key = 'gap' AND m.value LIKE '{"carried"_false%')
ORDER BY w.ready_us, w.id
LIMIT 1
{skip_locked}

-- name: take
UPDATE webhook_event
SET {lease_set}, fence = fence + 1, attempts = attempts + 1,
    error = :error
WHERE id = :id AND fence = :fence AND state = 'received'
RETURNING id

-- name: change
UPDATE webhook_event
SET state = :state, result = :result, error = :error, attempts = :attempts, ready_us = :ready_us, actor = :actor,
    ended_us = :ended_us, fence = :fence,
    {lease_none}
WHERE id = :id AND fence = :was
RETURNING id
