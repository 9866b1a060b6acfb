-- A store that was put back in time: its next epoch, and the gap.

-- name: next_epoch
UPDATE meta SET value = :new WHERE key = 'epoch' AND value = :old RETURNING value

-- name: set_meta
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: forget_copy
DELETE FROM meta WHERE key = 'copy_of' RETURNING value

-- A restored copy that was taken during a move is not moving.
-- name: forget_move
DELETE FROM meta WHERE key = 'moved'

-- name: last
SELECT seq, time_us FROM event ORDER BY seq DESC LIMIT 1

-- name: close_gap
DELETE FROM meta WHERE key = 'gap'

-- End all leases: their holders are of another epoch.
-- name: end_effects
UPDATE effect SET lease_until_us = 0, lease_mono_us = 0 WHERE holder IS NOT NULL

-- name: end_holds
UPDATE hold SET lease_until_us = 0, lease_mono_us = 0 WHERE holder IS NOT NULL

-- name: end_locks
UPDATE lease SET lease_until_us = 0, lease_mono_us = 0 WHERE holder IS NOT NULL

-- name: end_mail
UPDATE mail SET lease_until_us = 0, lease_mono_us = 0 WHERE holder IS NOT NULL

-- A run that was waiting or running may have ended in the gap, so it does not run again.
-- name: end_runs
UPDATE run
SET state = 'abandoned', reason = :reason, ended_us = :now_us, {lease_none}
WHERE state IN ('queued', 'running')

-- name: end_sessions
UPDATE session SET lease_until_us = 0, lease_mono_us = 0 WHERE holder IS NOT NULL

-- name: end_tasks
UPDATE task SET lease_until_us = 0, lease_mono_us = 0 WHERE holder IS NOT NULL

-- name: end_webhooks
UPDATE webhook_event SET lease_until_us = 0, lease_mono_us = 0 WHERE holder IS NOT NULL

-- name: active_loops
SELECT {columns:loop} FROM loop WHERE state IN ('active', 'paused') AND next_slot_us IS NOT NULL ORDER BY id

-- name: pause_loops
UPDATE loop SET state = 'paused', reason = :reason, updated_us = :now_us WHERE state = 'active'

-- name: expire_grants
UPDATE approval SET state = 'expired' WHERE state = 'granted'

-- The number is a parameter: it is higher than any that a process can have seen.
-- name: restored
INSERT INTO event (seq, time_us, occurred_us, scope, actor, holder, source, type, subject, summary, data, salt)
VALUES (:seq, :now_us, :now_us, '', :actor, :holder, 'seen', 'store.restored', :copy, :summary, :data, :salt)

-- An explicit number does not advance the sequence of PostgreSQL.
-- name: continue_after [postgres]
SELECT setval(pg_get_serial_sequence('event', 'seq'), :seq)

-- name: continue_after [sqlite]
SELECT :seq AS seq

-- In doubt only because of the gap; by the index of effects under way.
-- name: doubts
SELECT {columns:effect}
FROM effect
WHERE state = 'dispatched' AND state IN ('planned', 'dispatched') AND gave_up_us IS NOT NULL AND error LIKE :like
ORDER BY id
LIMIT :limit
