-- Steps: a result for each name, arguments and number; written once, by the owner of the session.

-- name: find
SELECT id, result, artifact_id, created_us
FROM step
WHERE session_id = :session_id AND name = :name AND arguments_hash = :arguments_hash AND n = :n

-- In a fork: the ancestor's step, if the journal knows it from before the cut.
-- name: find_before
SELECT id, result, artifact_id, created_us
FROM step
WHERE session_id = :session_id AND name = :name AND arguments_hash = :arguments_hash AND n = :n
  AND COALESCE((SELECT MIN(event.seq) FROM event WHERE event.subject = step.id), 0) <= :cut_seq

-- The owner is checked in the statement that writes: no row back means that it is not ours, or
-- that it is recorded already.
-- name: record [sqlite]
INSERT INTO step (id, session_id, name, arguments_hash, n, result, artifact_id, duration_us, created_us)
SELECT :id, session.id, :name, :arguments_hash, :n, :result, :artifact_id, :duration_us, {now_us}
FROM session
WHERE session.id = :session_id AND session.fence = :session_fence AND session.holder = :holder
ON CONFLICT (session_id, name, arguments_hash, n) DO NOTHING
RETURNING seq

-- The session's row is locked for others to read, so that a take-over waits for this commit:
-- otherwise its new owner could look for the step in between and not find it.
-- name: record [postgres]
INSERT INTO step (id, session_id, name, arguments_hash, n, result, artifact_id, duration_us, created_us)
SELECT :id, session.id, :name, :arguments_hash, :n, :result, :artifact_id, :duration_us, {now_us}
FROM session
WHERE session.id = :session_id AND session.fence = :session_fence AND session.holder = :holder
FOR SHARE
ON CONFLICT (session_id, name, arguments_hash, n) DO NOTHING
RETURNING seq
