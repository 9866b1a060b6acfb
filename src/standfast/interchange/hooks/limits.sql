-- Budgets of agents that report their usage in transcripts.

-- name: who
SELECT scope, key, COALESCE(agent, actor) AS agent FROM session WHERE id = :id

-- name: reported
SELECT 1 AS reported
FROM event
WHERE subject = :subject AND type IN ('budget.warned', 'budget.refused') AND session_id = :session_id
  AND time_us >= :since_us
LIMIT 1

-- The agent does not make a refused call.
-- name: cancelled
UPDATE tool_call SET status = 'cancelled', updated_us = :now_us, answered_us = :at_us
WHERE session_id = :session_id AND call_id = :call_id AND status = 'pending'
