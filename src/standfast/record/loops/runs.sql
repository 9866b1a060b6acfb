-- Runs: claimed, begun, ended. Every change is a compare-and-set with its attempt.

-- The next run of an account: it is due, no run of its loop is running, and no earlier slot of its loop is queued.
-- CROSS JOIN keeps SQLite from reading the loops first.
-- name: ready
SELECT {columns:run:r}, l.name AS loop, l.command, l.cwd, l.environment, l.timeout_us
FROM run r CROSS JOIN loop l
WHERE r.state = 'queued' AND r.ready_us <= :now_us AND l.id = r.loop_id AND l.account = :account
  AND NOT EXISTS (SELECT 1 FROM run o
                  WHERE o.loop_id = r.loop_id AND o.state IN ('queued', 'running') AND o.id <> r.id
                    AND (o.state = 'running' OR o.slot_us < r.slot_us))
ORDER BY r.ready_us, r.seq
LIMIT 1
{skip_locked}

-- One run by its id, for a caller that runs it itself.
-- name: ready_by_id
SELECT {columns:run:r}, l.name AS loop, l.command, l.cwd, l.environment, l.timeout_us
FROM run r JOIN loop l ON l.id = r.loop_id
WHERE r.id = :id AND r.state = 'queued'
{for_update}

-- Read after the lock: another worker may have claimed a run of the loop meanwhile.
-- name: running
SELECT id, slot_us, holder, lease_until_us FROM run WHERE loop_id = :loop_id AND state = 'running'

-- name: take
UPDATE run
SET state = 'running', attempt = attempt + 1, reason = NULL, exit_code = NULL, duration_us = NULL, host = :host,
    pid = NULL, process = NULL, stdout_id = NULL, stderr_id = NULL, {lease_set}, started_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = 'queued'
RETURNING id

-- name: begun
UPDATE run SET pid = :pid, process = :process
WHERE id = :id AND attempt = :attempt AND state = 'running'
RETURNING id

-- name: adopt
UPDATE run
SET {lease_set}
WHERE id = :id AND attempt = :attempt AND state = 'running' AND holder = :old_holder
RETURNING id

-- name: requeue
UPDATE run
SET state = 'queued', reason = :reason, pid = NULL, process = NULL, {lease_none}
WHERE id = :id AND attempt = :attempt AND state = 'running'
RETURNING id

-- name: end
UPDATE run
SET state = :state, reason = :reason, exit_code = :exit_code, duration_us = :duration_us, stdout_id = :stdout_id,
    stderr_id = :stderr_id, cancel_reason = NULL, ready_us = :ready_us, ended_us = :ended_us, {lease_none}
WHERE id = :id AND attempt = :attempt AND state = 'running'
RETURNING id

-- name: cancel_waiting
UPDATE run SET state = 'cancelled', reason = :reason, ended_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = 'queued'
RETURNING id

-- name: ask_to_end
UPDATE run SET cancel_reason = :reason
WHERE id = :id AND attempt = :attempt AND state = 'running'
RETURNING id

-- name: by_id
SELECT {columns:run:r}, l.name AS loop
FROM run r JOIN loop l ON l.id = r.loop_id
WHERE r.id = :id

-- name: by_id_for_update
SELECT {columns:run:r}, l.name AS loop, l.retries_max, l.backoff_us, l.failures_max
FROM run r JOIN loop l ON l.id = r.loop_id
WHERE r.id = :id
{for_update}

-- name: holders
SELECT DISTINCT holder FROM run WHERE holder > '' AND holder IS NOT NULL LIMIT :limit

-- Whose time has run out. In the order of the index: those that run are few, those that ran are not.
-- name: over
SELECT {columns:run:r}, l.name AS loop, l.retries_max, l.backoff_us, l.failures_max
FROM run r JOIN loop l ON l.id = r.loop_id
WHERE r.holder > '' AND r.holder IS NOT NULL AND {lease_over:r}
ORDER BY r.holder
LIMIT :limit
{skip_locked}

-- name: of_holder
SELECT {columns:run:r}, l.name AS loop, l.retries_max, l.backoff_us, l.failures_max
FROM run r JOIN loop l ON l.id = r.loop_id
WHERE r.holder = :holder AND r.holder IS NOT NULL
LIMIT :limit
{skip_locked}

-- The same two, to look at.
-- name: over_seen
SELECT {columns:run:r}, l.name AS loop
FROM run r JOIN loop l ON l.id = r.loop_id
WHERE r.holder > '' AND r.holder IS NOT NULL AND {lease_over:r}
ORDER BY r.holder
LIMIT :limit

-- name: of_holder_seen
SELECT {columns:run:r}, l.name AS loop
FROM run r JOIN loop l ON l.id = r.loop_id
WHERE r.holder = :holder AND r.holder IS NOT NULL
LIMIT :limit

-- name: to_cancel
SELECT {columns:run:r}, l.name AS loop
FROM run r JOIN loop l ON l.id = r.loop_id
WHERE r.holder = :holder AND r.holder IS NOT NULL AND r.cancel_reason IS NOT NULL
LIMIT :limit

-- name: of_loop
SELECT {columns:run:r}, l.name AS loop
FROM run r JOIN loop l ON l.id = r.loop_id
WHERE r.loop_id = :loop_id AND r.slot_us <= :slot_us AND (r.slot_us < :slot_us OR r.id < :id)
  AND (:state = '' OR r.state = :state) AND COALESCE(r.until_slot_us, r.slot_us) >= :since_us AND r.slot_us < :until_us
ORDER BY r.slot_us DESC, r.id DESC
LIMIT :limit

-- CROSS JOIN keeps SQLite from beginning with the loops and sorting the history.
-- name: of_scope
SELECT {columns:run:r}, l.name AS loop
FROM run r CROSS JOIN loop l
WHERE l.id = r.loop_id AND r.scope = :scope AND {here:r} AND (r.slot_us, r.id) < (:slot_us, :id)
  AND (:state = '' OR r.state = :state) AND COALESCE(r.until_slot_us, r.slot_us) >= :since_us AND r.slot_us < :until_us
ORDER BY r.slot_us DESC, r.id DESC
LIMIT :limit

-- name: everywhere
SELECT {columns:run:r}, l.name AS loop
FROM run r JOIN loop l ON l.id = r.loop_id
WHERE r.id < :id AND (:state = '' OR r.state = :state) AND COALESCE(r.until_slot_us, r.slot_us) >= :since_us AND r.slot_us < :until_us
ORDER BY r.id DESC
LIMIT :limit

-- name: failed
UPDATE loop SET failures = failures + 1 WHERE id = :id
RETURNING {columns:loop}

-- name: succeeded
UPDATE loop SET failures = 0 WHERE id = :id AND failures > 0
