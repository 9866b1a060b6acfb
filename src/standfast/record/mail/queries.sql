-- Reading mail. Pages are ordered by columns that do not change.

-- Waiting mail of one box, in the order of delivery.
-- name: waiting
SELECT {columns:mail}
FROM mail
WHERE scope = :scope AND box = :box AND ended_us IS NULL
  AND (priority, seq) > (:priority, :seq)
  AND (:state = '' OR state = :state) AND (:sender = '' OR sender = :sender)
ORDER BY priority, seq
LIMIT :limit

-- Waiting mail of every box, by box.
-- name: waiting_all
SELECT {columns:mail}
FROM mail
WHERE ended_us IS NULL AND (:everywhere = 1 OR scope = :scope)
  AND (scope, box, priority, seq) > (:at_scope, :at_box, :priority, :seq)
  AND (:state = '' OR state = :state) AND (:sender = '' OR sender = :sender)
ORDER BY scope, box, priority, seq
LIMIT :limit

-- Mail of one box that has ended, the newest first.
-- name: ended
SELECT {columns:mail}
FROM mail
WHERE scope = :scope AND box = :box AND ended_us IS NOT NULL AND seq < :seq
  AND (:state = '' OR state = :state) AND (:sender = '' OR sender = :sender)
ORDER BY seq DESC
LIMIT :limit

-- name: any
SELECT {columns:mail}
FROM mail
WHERE seq < :seq AND (:everywhere = 1 OR scope = :scope) AND (:box = '' OR box = :box)
  AND (:state = '' OR state = :state) AND (:sender = '' OR sender = :sender)
ORDER BY seq DESC
LIMIT :limit

-- name: sent_by
SELECT {columns:mail}
FROM mail
WHERE scope = :scope AND sender = :sender AND seq < :seq
ORDER BY seq DESC
LIMIT :limit

-- A conversation: its first mail, and every answer.
-- name: thread
SELECT {columns:mail}
FROM mail
WHERE id = :thread_id
UNION ALL
SELECT {columns:mail}
FROM mail
WHERE thread_id = :thread_id AND thread_id <> id
ORDER BY seq
LIMIT :limit

-- name: attempts
SELECT n, fence, actor, holder, began_us, ended_us, outcome, reason
FROM mail_attempt
WHERE mail_id = :id
ORDER BY n DESC
LIMIT :limit

-- name: first_attempt
SELECT began_us FROM mail_attempt WHERE mail_id = :id AND n = 1

-- name: box
SELECT seen_us FROM mail_box WHERE scope = :scope AND box = :box

-- The number of mails that are delivered before this one, counted up to 1,000.
-- name: ahead
SELECT count(*) AS n FROM (
    SELECT 1 FROM mail
    WHERE scope = :scope AND box = :box AND ended_us IS NULL AND (priority, seq) < (:priority, :seq)
    LIMIT 1000
) AS counted

-- name: letters_of
SELECT {columns:dead_letter}
FROM dead_letter
WHERE subject = :id
ORDER BY id DESC
LIMIT :limit

-- name: latest_events
SELECT {columns:event}
FROM event
WHERE subject = :id
ORDER BY seq DESC
LIMIT :limit
