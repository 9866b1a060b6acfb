-- Receiving: one row per (scope, source, event id), which is never deleted.

-- name: receive
INSERT INTO webhook_event (id, scope, source, event_id, kind, hash, payload, state, deliveries, attempts,
                           attempts_max, ready_us, fence, received_us, git_dir, origin)
VALUES (:id, :scope, :source, :event_id, :kind, :hash, :payload, 'received', 1, 0, :attempts_max, :now_us, 0, :now_us,
        :git_dir, :origin)
ON CONFLICT (scope, source, event_id) DO NOTHING
RETURNING {columns:webhook_event}

-- name: by_event_for_update
SELECT {columns:webhook_event}
FROM webhook_event
WHERE scope = :scope AND source = :source AND event_id = :event_id
{for_update}

-- name: count
UPDATE webhook_event SET deliveries = deliveries + 1 WHERE id = :id
