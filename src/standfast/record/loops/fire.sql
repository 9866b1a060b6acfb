-- Firing: due loops of one account in the order of their slots. A loop that another transaction has locked is skipped.

-- name: due
SELECT {columns:loop},
       (SELECT COUNT(*) FROM run o WHERE o.loop_id = loop.id AND o.state IN ('queued', 'running')) AS open_runs,
       (SELECT MIN(o.slot_us) FROM run o WHERE o.loop_id = loop.id AND o.state IN ('queued', 'running')) AS open_slot_us
FROM loop
WHERE next_slot_us IS NOT NULL AND next_slot_us <= :now_us AND account = :account
ORDER BY next_slot_us
LIMIT :limit
{skip_locked}

-- A slot has one row: the second process writes nothing.
-- name: write
INSERT INTO run (id, loop_id, scope, slot_us, until_slot_us, slots, source, state, reason, attempt, ready_us,
                 created_us, ended_us, git_dir, origin)
VALUES (:id, :loop_id, :scope, :slot_us, :until_slot_us, :slots, :source, :state, :reason, 0, :ready_us,
        :now_us, :ended_us, :git_dir, :origin)
ON CONFLICT (loop_id, slot_us) DO NOTHING
RETURNING id

-- name: known
SELECT slot_us FROM run WHERE loop_id = :loop_id AND slot_us BETWEEN :first_us AND :last_us LIMIT :limit

-- name: advance
UPDATE loop
SET next_slot_us = :next_slot_us, last_slot_us = :last_slot_us, state = :state, reason = :reason
WHERE id = :id AND next_slot_us = :slot_us
RETURNING id

-- name: put_off
UPDATE loop
SET state = 'paused', reason = :reason, next_slot_us = NULL, updated_us = :now_us
WHERE id = :id AND next_slot_us = :slot_us
RETURNING id

-- name: next_slot
SELECT next_slot_us AS us
FROM loop
WHERE next_slot_us IS NOT NULL AND account = :account
ORDER BY next_slot_us
LIMIT 1

-- A run that waits for another run of its loop is not ready. CROSS JOIN keeps SQLite from reading the loops first.
-- name: next_ready
SELECT r.ready_us AS us
FROM run r CROSS JOIN loop l
WHERE r.state = 'queued' AND l.id = r.loop_id AND l.account = :account
  AND NOT EXISTS (SELECT 1 FROM run o
                  WHERE o.loop_id = r.loop_id AND o.state IN ('queued', 'running') AND o.id <> r.id
                    AND (o.state = 'running' OR o.slot_us < r.slot_us))
ORDER BY r.ready_us, r.seq
LIMIT 1

-- name: late
SELECT id, scope, git_dir, origin, account, name, kind, schedule, zone, anchor_us, next_slot_us, last_slot_us
FROM loop
WHERE next_slot_us IS NOT NULL AND next_slot_us < :late_us AND state = 'active' AND (:everywhere = 1 OR scope = :scope)
  AND {here}
ORDER BY next_slot_us
LIMIT :limit

-- name: schedule_of
SELECT kind, schedule, zone, anchor_us FROM loop WHERE id = :id
