-- Receiving: one row per (scope, source, event id), for ever.

-- name: receive
INSERT INTO webhook_event (id, scope, source, event_id, kind, hash, payload, state, deliveries, attempts,
                           attempts_max, ready_us, fence, received_us, git_dir, origin)
VALUES (:id, :scope, :source, :event_id, :kind, :hash, :payload, 'received', 1, 0, :attempts_max, :now_us, 0, :now_us,
        :git_dir, :origin)
ON CONFLICT (scope, source, event_id) DO NOTHING
RETURNING id, scope, source, event_id, kind, hash, payload, state, result, error, deliveries, attempts, attempts_max,
          ready_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, fence, received_us, ended_us

-- name: by_event_for_update
SELECT id, scope, source, event_id, kind, hash, payload, state, result, error, deliveries, attempts, attempts_max,
       ready_us, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, fence, received_us, ended_us
FROM webhook_event
WHERE scope = :scope AND source = :source AND event_id = :event_id
{for_update}

-- name: count
UPDATE webhook_event SET deliveries = deliveries + 1 WHERE id = :id
