-- The mark that a store moves: see db/move_mark.py.

-- Every write reads `meta` first. So this waits for the writes that have begun, and new ones wait for this.
-- name: alone [postgres]
LOCK TABLE meta IN ACCESS EXCLUSIVE MODE

-- name: alone [sqlite]
SELECT 1 AS alone

-- name: mark
SELECT value FROM meta WHERE key = 'moved'

-- name: set_mark
INSERT INTO meta (key, value) VALUES ('moved', :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: seal
UPDATE meta SET value = :value WHERE key = 'moved' AND value = :mark

-- name: remove_mark
DELETE FROM meta WHERE key = 'moved' AND value = :mark

-- name: sending
SELECT {columns:effect} FROM effect
WHERE state = 'dispatched' AND state IN ('planned', 'dispatched') AND holder IS NOT NULL
ORDER BY id

-- name: running
SELECT {columns:run} FROM run WHERE state = 'running' ORDER BY id
