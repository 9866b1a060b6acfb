-- Working on events: every change is on a row that this transaction has locked, and compares the fence.

-- name: by_id
SELECT {columns:webhook_event}
FROM webhook_event
WHERE id = :id

-- name: by_id_for_update
SELECT {columns:webhook_event}
FROM webhook_event
WHERE id = :id
{for_update}

-- name: by_event
SELECT {columns:webhook_event}
FROM webhook_event
WHERE scope = :scope AND source = :source AND event_id = :event_id

-- name: by_suffix
SELECT id FROM webhook_event WHERE id LIKE :pattern ORDER BY id DESC LIMIT 2

-- The one that has waited longest: its time has come, and nobody alive holds it.
-- name: ready
SELECT {columns:webhook_event}
FROM webhook_event w
WHERE w.scope = :scope AND w.state = 'received' AND w.ready_us <= :now_us
  AND (w.holder IS NULL OR {lease_over:w})
  AND (:source = '' OR w.source = :source) AND (:kind = '' OR w.kind = :kind)
ORDER BY w.ready_us, w.id
LIMIT 1
{skip_locked}

-- Processes that hold events: they may have died before their time.
-- name: processes
SELECT DISTINCT holder
FROM webhook_event
WHERE holder IS NOT NULL AND holder LIKE 'p:%' AND lease_until_us > 0
LIMIT :limit

-- A process that is known to be dead holds nothing, whatever its leases say. Its name stays for the
-- journal of whoever takes over.
-- name: expire
UPDATE webhook_event
SET lease_until_us = 0, lease_boot = NULL, lease_mono_us = 0
WHERE holder = :holder

-- name: take
UPDATE webhook_event
SET holder = :holder, actor = :actor, lease_until_us = :lease_until_us, lease_boot = :lease_boot,
    lease_mono_us = :lease_mono_us, lease_for_us = :lease_for_us, fence = fence + 1, attempts = attempts + 1,
    error = :error
WHERE id = :id AND fence = :fence AND state = 'received'
RETURNING id

-- name: extend
UPDATE webhook_event
SET lease_until_us = :lease_until_us, lease_boot = :lease_boot, lease_mono_us = :lease_mono_us,
    lease_for_us = :lease_for_us
WHERE id = :id AND fence = :fence AND holder = :holder
RETURNING id

-- name: change
UPDATE webhook_event
SET state = :state, result = :result, error = :error, attempts = :attempts, ready_us = :ready_us, actor = :actor,
    ended_us = :ended_us, fence = :fence,
    holder = NULL, lease_until_us = NULL, lease_boot = NULL, lease_mono_us = NULL, lease_for_us = NULL
WHERE id = :id AND fence = :was
RETURNING id
