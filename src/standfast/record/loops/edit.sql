-- Loops: added by name, found, changed.

-- The name of a removed loop is free again.
-- name: create
INSERT INTO loop (id, scope, name, kind, schedule, zone, command, cwd, environment, catch_up, catch_up_max, overlap,
                  timeout_us, retries_max, backoff_us, failures_max, failures, state, spec_hash, anchor_us,
                  next_slot_us, actor, created_us, updated_us, git_dir, origin, account, host)
VALUES (:id, :scope, :name, :kind, :schedule, :zone, :command, :cwd, :environment, :catch_up, :catch_up_max, :overlap,
        :timeout_us, :retries_max, :backoff_us, :failures_max, 0, 'active', :spec_hash, :anchor_us,
        :next_slot_us, :actor, :now_us, :now_us, :git_dir, :origin, :account, :host)
ON CONFLICT (scope, name) WHERE state <> 'removed' DO NOTHING
RETURNING {columns:loop}

-- name: by_name
SELECT {columns:loop}
FROM loop
WHERE scope = :scope AND name = :name AND state <> 'removed'

-- name: by_id
SELECT {columns:loop}
FROM loop
WHERE id = :id

-- name: by_id_for_update
SELECT {columns:loop}
FROM loop
WHERE id = :id
{for_update}

-- name: page
SELECT {columns:loop}
FROM loop
WHERE (:everywhere = 1 OR scope = :scope) AND (:state = '' OR state = :state) AND (:state <> '' OR state <> 'removed')
  AND {here}
  AND (scope, name, id) > (:after_scope, :after_name, :after_id)
ORDER BY scope, name, id
LIMIT :limit

-- name: change
UPDATE loop
SET kind = :kind, schedule = :schedule, zone = :zone, command = :command, cwd = :cwd, environment = :environment,
    catch_up = :catch_up, catch_up_max = :catch_up_max, overlap = :overlap, timeout_us = :timeout_us,
    retries_max = :retries_max, backoff_us = :backoff_us, failures_max = :failures_max, spec_hash = :spec_hash,
    state = :state, reason = :reason, anchor_us = :anchor_us, next_slot_us = :next_slot_us, actor = :actor,
    account = :account, host = :host, updated_us = :now_us
WHERE id = :id AND spec_hash = :old_hash AND state <> 'removed'
RETURNING {columns:loop}

-- name: set_state
UPDATE loop
SET state = :state, reason = :reason, failures = :failures, next_slot_us = :next_slot_us, updated_us = :now_us
WHERE id = :id AND state = :old_state
RETURNING {columns:loop}

-- Cancels queued runs. A running one continues.
-- name: cancel_queued
UPDATE run
SET state = 'cancelled', reason = :reason, ended_us = :now_us
WHERE loop_id = :loop_id AND state = 'queued'
RETURNING id, slot_us
