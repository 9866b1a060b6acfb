-- Replies in the thread of a question. The reply that was taken comes first, so that the answer never changes: a
-- transaction that commits later may add a reply with a smaller `seq`.
-- name: replies
SELECT {columns:mail}
FROM mail
WHERE thread_id = :thread_id AND thread_id <> id AND box = :box AND reply_to_id IS NOT NULL
ORDER BY CASE WHEN state = 'done' THEN 0 ELSE 1 END, CASE WHEN state = 'done' THEN ended_us ELSE 0 END, seq
LIMIT :limit

-- The state of the effect or approval that an attempt waits for.
-- name: awaited
SELECT state FROM effect WHERE id = :effect_id
UNION ALL
SELECT state FROM approval WHERE id = :approval_id
