-- The session of an answer is named after its mail. A mail that a reader has is left alone.
-- name: make_ready
UPDATE mail
SET ready_us = 0
WHERE id = (SELECT substr(s.key, 6) FROM session AS s WHERE s.id = :session_id AND s.key LIKE 'mail:%')
  AND state = 'sent' AND ready_us > 0
