-- The changes that can be undone: those with before-images, and values of `state`, which the journal has.

-- name: page
SELECT seq, time_us, actor AS agent, type, subject, summary,
       (SELECT count(*) FROM removed WHERE event_seq = event.seq) AS rows,
       (SELECT count(*) FROM removed WHERE event_seq = event.seq AND undone_us IS NOT NULL) AS undone
FROM event
WHERE seq < :before AND time_us >= :since_us AND (:actor = '' OR actor = :actor)
  AND (type IN ('state.set', 'state.deleted', 'application.committed')
       OR EXISTS (SELECT 1 FROM removed WHERE event_seq = event.seq))
ORDER BY seq DESC
LIMIT :limit

-- name: by_seq
SELECT seq, time_us, actor AS agent, type, subject, summary,
       (SELECT count(*) FROM removed WHERE event_seq = event.seq) AS rows,
       (SELECT count(*) FROM removed WHERE event_seq = event.seq AND undone_us IS NOT NULL) AS undone
FROM event
WHERE seq = :seq

-- The newest change of an object: by its subject, the key of a value, or the end of an id.
-- name: about
SELECT max(seq) AS seq
FROM event
WHERE (subject IN (:name, :state) AND (type IN ('state.set', 'state.deleted', 'application.committed')
                                       OR EXISTS (SELECT 1 FROM removed WHERE event_seq = event.seq)))
   OR seq IN (SELECT event_seq FROM removed WHERE id = :name)
   OR seq IN (SELECT event_seq FROM removed JOIN event AS own ON own.seq = event_seq WHERE own.subject LIKE :pattern)
HAVING max(seq) IS NOT NULL

-- name: images
SELECT table_name, row_key, old_values, new_values FROM removed WHERE event_seq = :seq ORDER BY id DESC

-- name: mark
UPDATE removed SET undone_us = :now_us WHERE event_seq = :seq

-- On SQLite the rows of one transaction have the same time and holder.
-- name: parts [sqlite]
SELECT {columns:event}, git_dir, origin
FROM event
WHERE seq < :seq AND seq > :seq - 100000 AND time_us = :time_us AND holder = :holder
ORDER BY seq DESC
LIMIT :limit

-- name: parts [postgres]
SELECT {columns:event}, git_dir, origin
FROM event
WHERE seq < :seq AND xid = (SELECT own.xid FROM event AS own WHERE own.seq = :seq)
ORDER BY seq DESC
LIMIT :limit

-- name: later
SELECT seq, actor, type, time_us FROM event WHERE subject = :subject AND seq > :seq ORDER BY seq DESC LIMIT 1

-- name: state
SELECT {columns:state}, git_dir, origin
FROM state
WHERE namespace = :namespace AND key = :key
{for_update}

-- name: versions
SELECT type, data FROM event
WHERE subject = :subject AND seq < :seq AND scope = :scope AND type IN ('state.set', 'state.deleted')
ORDER BY seq DESC
LIMIT 50

-- name: loop_taken
SELECT other.id AS id
FROM loop AS own JOIN loop AS other ON other.scope = own.scope AND other.name = own.name AND other.id <> own.id
WHERE own.id = :row AND other.state <> 'removed'

-- name: gate_taken
SELECT other.id AS id
FROM gate AS own JOIN gate AS other
  ON other.scope = own.scope AND other.repository = own.repository AND other.pattern = own.pattern AND other.id <> own.id
WHERE own.id = :row AND other.removed_us IS NULL

-- name: task_taken
SELECT other.id AS id
FROM task AS own JOIN task AS other
  ON other.scope = own.scope AND other.repository = own.repository AND other.fingerprint = own.fingerprint
 AND other.id <> own.id
WHERE own.id = :row AND other.state <> 'closed'

-- name: decision_taken
SELECT other.id AS id
FROM decision AS own JOIN decision AS other
  ON other.scope = own.scope AND other.repository = own.repository AND other.identity = own.identity
 AND other.id <> own.id
WHERE own.id = :row AND other.state = 'standing'
