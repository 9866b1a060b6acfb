-- The last calls of a session and their observations.

-- name: recent
SELECT seq, type, subject, state, occurred_us, summary, data
FROM event
WHERE session_id = :session_id
ORDER BY seq DESC
LIMIT :limit

-- name: called
SELECT status, input FROM tool_call WHERE id = :id
