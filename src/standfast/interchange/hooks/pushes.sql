-- Pushes: which calls of a session have not returned.

-- name: pending
SELECT input FROM tool_call
WHERE session_id = :session_id AND status = 'pending' AND called_us >= :since_us
ORDER BY id DESC
LIMIT :limit
