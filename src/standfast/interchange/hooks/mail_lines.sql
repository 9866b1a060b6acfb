-- Waiting mail of the agent whose hook runs.

-- name: waiting
SELECT id, box, sender, subject, body, provenance, state
FROM mail
WHERE scope = :scope
  AND box IN (:box_0, :box_1, :box_2, :box_3, :box_4, :box_5, :box_6, :box_7, :box_8, :box_9, :box_10, :box_11)
  AND ended_us IS NULL AND holder IS NULL
  AND ready_us <= :now_us AND (expires_us IS NULL OR expires_us > :now_us)
ORDER BY priority, seq
LIMIT :limit

-- Names that were given to the holder: `standfast agent name`.
-- name: names
SELECT name FROM agent WHERE scope = :scope AND holder = :holder ORDER BY last_seen_us DESC LIMIT :limit

-- name: announced
SELECT seq FROM event WHERE subject = :subject AND type = :type AND session_id = :session_id LIMIT 1
