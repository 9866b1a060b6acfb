-- Delivery to one holder at a time. Every change is on a row that this transaction has locked.

-- name: by_key
SELECT {columns:mail}
FROM mail
WHERE scope = :scope AND key = :key

-- Mail to deliver now: not deferred, not expired, and without a live holder.
-- name: ready
SELECT {columns:mail}
FROM mail m
WHERE m.scope = :scope AND m.box = :box AND m.ended_us IS NULL
  AND m.ready_us <= :now_us AND (m.expires_us IS NULL OR m.expires_us > :now_us)
  AND (m.holder IS NULL OR {lease_over:m})
  AND (:thread_id = '' OR m.thread_id = :thread_id)
ORDER BY m.priority, m.seq
LIMIT 1
{skip_locked}

-- On PostgreSQL the server's clock is used if the transaction has not reported its time yet. So this query needs no
-- round trip before it.
-- name: ready [postgres]
SELECT {columns:mail}
FROM mail m
WHERE m.scope = :scope AND m.box = :box AND m.ended_us IS NULL
  AND m.ready_us <= {now_us} AND (m.expires_us IS NULL OR m.expires_us > {now_us})
  AND (m.holder IS NULL OR m.lease_until_us <= {now_us})
  AND (:thread_id = '' OR m.thread_id = :thread_id)
ORDER BY m.priority, m.seq
LIMIT 1
{skip_locked}

-- The same without a lock.
-- name: peek
SELECT id
FROM mail m
WHERE m.scope = :scope AND m.box = :box AND m.ended_us IS NULL
  AND m.ready_us <= :now_us AND (m.expires_us IS NULL OR m.expires_us > :now_us)
  AND (m.holder IS NULL OR {lease_over:m})
  AND (:thread_id = '' OR m.thread_id = :thread_id)
ORDER BY m.priority, m.seq
LIMIT 1

-- One statement, for the same reason as above: a follower that wakes up needs one round trip.
-- name: peek [postgres]
SELECT id
FROM mail m
WHERE m.scope = :scope AND m.box = :box AND m.ended_us IS NULL
  AND m.ready_us <= {now_us} AND (m.expires_us IS NULL OR m.expires_us > {now_us})
  AND (m.holder IS NULL OR m.lease_until_us <= {now_us})
  AND (:thread_id = '' OR m.thread_id = :thread_id)
ORDER BY m.priority, m.seq
LIMIT 1

-- When the box was last read. It is written at most once a minute: on PostgreSQL the readers of one box would otherwise
-- wait for each other's row lock.
-- name: seen
INSERT INTO mail_box (scope, box, seen_us, seen_by, refused, git_dir, origin)
SELECT :scope, :box, CAST(:now_us AS BIGINT), :actor, 0, CAST(:git_dir AS TEXT), CAST(:origin AS TEXT)
WHERE NOT EXISTS (SELECT 1 FROM mail_box WHERE scope = :scope AND box = :box AND seen_us > :stale_us)
ON CONFLICT (scope, box) DO UPDATE SET seen_us = excluded.seen_us, seen_by = excluded.seen_by

-- name: take
UPDATE mail
SET state = 'leased', {lease_set}, kept = 1, fence = fence + 1, attempts = attempts + 1
WHERE id = :id AND fence = :fence AND ended_us IS NULL
RETURNING id

-- name: begin_attempt
INSERT INTO mail_attempt (mail_id, n, fence, actor, holder, began_us)
VALUES (:id, :n, :fence, :actor, :holder, :now_us)
RETURNING n

-- name: end_attempt
UPDATE mail_attempt
SET ended_us = :now_us, outcome = :outcome, reason = :reason
WHERE mail_id = :id AND n = :n AND ended_us IS NULL
RETURNING n

-- name: mark_read
UPDATE mail
SET state = 'read', read_us = COALESCE(read_us, :now_us), kept = :kept
WHERE id = :id AND fence = :fence AND holder = :holder AND state IN ('leased', 'read')
RETURNING id

-- The follower was closed: the mail stays leased, and its lease is not renewed any more.
-- name: let_age
UPDATE mail SET kept = 0 WHERE id = :id AND fence = :fence AND holder = :holder AND ended_us IS NULL

-- Clear the holder and increase the fence: later writes of the old holder are refused.
-- name: give_back
UPDATE mail
SET state = 'sent', reason = :reason, ready_us = :ready_us, attempts_max = :attempts_max, fence = fence + 1,
    kept = 0, {lease_none}
WHERE id = :id AND fence = :fence AND ended_us IS NULL
RETURNING id

-- name: finish
UPDATE mail
SET state = :state, reason = :reason, actor = :actor, ended_us = :now_us, read_us = :read_us, fence = fence + :grow,
    kept = 0, {lease_none}
WHERE id = :id AND fence = :fence AND ended_us IS NULL
RETURNING id

-- name: revive
UPDATE mail
SET state = 'sent', reason = :reason, ready_us = 0, expires_us = :expires_us, attempts_max = :attempts_max,
    fence = fence + 1, ended_us = NULL
WHERE id = :id AND fence = :fence AND state IN ('dead', 'expired')
RETURNING id

-- Without a live holder, in every scope: for the sweep.
-- name: lapsed
SELECT {columns:mail}
FROM mail m
WHERE m.holder IS NOT NULL AND m.ended_us IS NULL AND {lease_over:m}
LIMIT :limit
{skip_locked}

-- name: overdue
SELECT {columns:mail}
FROM mail m
WHERE m.ended_us IS NULL AND m.expires_us IS NOT NULL AND m.expires_us <= :now_us AND m.holder IS NULL
ORDER BY m.expires_us
LIMIT :limit
{skip_locked}
