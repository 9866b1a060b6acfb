-- Who has a session: opened, kept, given back; and what it held when it was opened again.

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

-- The holder goes; the fence stays until the next opening, except when the hold is ended by
-- another holder: then it grows, so that the old holder is refused at once.
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

-- What was found when a session was opened again. Messages are counted by their positions, not read.
-- name: counts
SELECT (SELECT COUNT(*) FROM step WHERE session_id = :id) AS steps,
       (SELECT COUNT(*) FROM effect WHERE session_id = :id) AS effects,
       (SELECT COALESCE(SUM(next_position - 1), 0) FROM node WHERE session_id = :id) AS messages

-- By the index of open effects, however many effects the session has had: COALESCE keeps its own index out of it,
-- and SQLite uses a partial index only for a query that repeats its condition.
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

-- How the opening that is under way began.
-- name: opened
SELECT type, data FROM event
WHERE subject = :id AND type IN ('session.opened', 'session.resumed', 'session.taken_over')
ORDER BY seq DESC
LIMIT 1
