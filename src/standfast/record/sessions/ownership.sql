-- Ownership of a session: opened, extended, ended; and the counts of a resumed one.

-- name: create
INSERT INTO session (id, scope, key, state, agent, command, cwd, openings, holder, actor, lease_until_us, lease_boot,
                     lease_mono_us, lease_for_us, fence, created_us, updated_us, git_dir, origin)
VALUES (:id, :scope, :key, 'active', :agent, :command, :cwd, 1, :holder, :actor, :lease_until_us, :lease_boot,
        :lease_mono_us, :lease_for_us, 1, :now_us, :now_us, :git_dir, :origin)
ON CONFLICT (scope, key) DO NOTHING
RETURNING {columns:session}

-- name: take_over
UPDATE session
SET state = 'active', reason = NULL, ended_us = NULL, agent = COALESCE(:agent, agent),
    command = COALESCE(:command, command), cwd = COALESCE(:cwd, cwd), openings = openings + 1,
    {lease_set}, fence = fence + 1, updated_us = :now_us
WHERE id = :id AND fence = :fence
RETURNING {columns:session}

-- name: extend
UPDATE session
SET lease_until_us = :lease_until_us, lease_boot = :lease_boot, lease_mono_us = :lease_mono_us,
    lease_for_us = :lease_for_us
WHERE id = :id AND fence = :fence AND holder = :holder
RETURNING {columns:session}

-- Clears the holder. The fence grows only if another holder does it, so that the old holder is refused at once.
-- name: let_go
UPDATE session
SET state = :state, reason = :reason, holder = NULL, lease_until_us = NULL, lease_boot = NULL, lease_mono_us = NULL,
    fence = fence + :grow, updated_us = :now_us, ended_us = :ended_us
WHERE id = :id AND fence = :fence
RETURNING {columns:session}

-- name: move
UPDATE session
SET cursor = :cursor, updated_us = :now_us
WHERE id = :session_id AND fence = :session_fence AND holder = :holder
RETURNING id

-- The counts of a resumed session. Messages are counted by their positions, not read.
-- name: counts
SELECT (SELECT COUNT(*) FROM step WHERE session_id = :id) AS steps,
       (SELECT COUNT(*) FROM effect WHERE session_id = :id) AS effects,
       (SELECT COALESCE(SUM(next_position - 1), 0) FROM node WHERE session_id = :id) AS messages

-- Uses the partial index of open effects, because a session may have many effects. COALESCE keeps SQLite from using the
-- index on session_id, and SQLite uses a partial index only for a query that repeats its condition.
-- name: dispatched
SELECT id, tool, key, holder, actor, lease_until_us, lease_boot, lease_mono_us, gave_up_us, dispatched_us
FROM effect
WHERE state = 'dispatched' AND state IN ('planned', 'dispatched') AND COALESCE(session_id, '') = :id
ORDER BY planned_us
LIMIT :limit

-- name: effect
SELECT state FROM effect WHERE id = :id

-- name: asked
SELECT tool FROM approval
WHERE scope = :scope AND session_id = :id AND state = 'requested' AND expires_us > :now_us
ORDER BY requested_us
LIMIT 1

-- name: open_decisions
SELECT id, what FROM decision WHERE session_id = :id AND state = 'open' ORDER BY created_us LIMIT :limit

-- The journal entry of the current opening.
-- name: opened
SELECT type, data FROM event
WHERE subject = :id AND type IN ('session.opened', 'session.resumed', 'session.taken_over')
ORDER BY seq DESC
LIMIT 1
