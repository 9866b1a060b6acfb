-- Sending: once per key, within the bound of the box.

-- The bound of the box and its waiting mail, counted up to the bound.
-- name: room_left
SELECT COALESCE((SELECT b.bound FROM mail_box b WHERE b.scope = :scope AND b.box = :box), :bound_default) AS bound,
       (SELECT count(*) FROM (
            SELECT 1 FROM mail WHERE scope = :scope AND box = :box AND ended_us IS NULL
            LIMIT (SELECT COALESCE(max(c.bound), :bound_default) FROM mail_box c
                   WHERE c.scope = :scope AND c.box = :box)
        ) AS counted) AS waiting

-- Senders to a nearly full box take turns, so that the bound is kept. SQLite has one writer anyway.
-- name: alone [sqlite]
SELECT 1 AS alone

-- name: alone [postgres]
SELECT pg_advisory_xact_lock(hashtextextended(:name, 0)) IS NULL AS alone

-- ready_us is 0, not :now_us: otherwise a clock that is set back would hide mail that was sent before.
-- name: send
INSERT INTO mail (id, scope, box, sender, thread_id, reply_to_id, subject, body, hash, key, priority, state, attempts,
                  attempts_max, provenance, session_id, ready_us, expires_us, kept, fence, sent_us, git_dir, origin)
VALUES (:id, :scope, :box, :sender, :thread_id, :reply_to_id, :subject, :body, :hash, :key, :priority, 'sent', 0,
        :attempts_max, :provenance, :session_id, 0, :expires_us, 0, 0, :now_us, :git_dir, :origin)
ON CONFLICT (scope, key) WHERE key IS NOT NULL DO NOTHING
RETURNING {columns:mail}

-- name: refused
INSERT INTO mail_box (scope, box, refused, refused_us, git_dir, origin)
VALUES (:scope, :box, 1, :now_us, :git_dir, :origin)
ON CONFLICT (scope, box) DO UPDATE SET refused = mail_box.refused + 1, refused_us = excluded.refused_us
RETURNING refused

-- name: set_bound
INSERT INTO mail_box (scope, box, bound, refused, git_dir, origin)
VALUES (:scope, :box, :bound, 0, :git_dir, :origin)
ON CONFLICT (scope, box) DO UPDATE SET bound = excluded.bound
RETURNING scope, box
