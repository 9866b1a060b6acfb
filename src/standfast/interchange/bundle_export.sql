-- name: sessions
SELECT id, key, state, reason, agent, parent_id, holder, created_us, updated_us
FROM session
WHERE id = :session OR (scope = :scope AND key = :session)

-- name: events
SELECT seq, time_us, actor, source, type, subject, session_id, state, summary, data
FROM event
WHERE session_id = :session
ORDER BY seq

-- name: hand_over
UPDATE session SET state = 'completed', reason = :reason, updated_us = :now_us, ended_us = :now_us, fence = fence + 1,
                   {lease_none}
WHERE id = :id AND fence = :fence
RETURNING {columns:session}
