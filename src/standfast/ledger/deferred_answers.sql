-- The key of a session that answers a mail is `mail:` and the id of the mail. Mail that a reader has leased stays as it
-- is.
-- name: make_ready
UPDATE mail
SET ready_us = 0
WHERE id = (SELECT substr(s.key, 6) FROM session AS s WHERE s.id = :session_id AND s.key LIKE 'mail:%')
  AND state = 'sent' AND ready_us > 0
