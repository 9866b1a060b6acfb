-- The journal: append-only. A row is written in the transaction of the change.

-- On SQLite the engine reads the row's number from its connection.
-- name: append [sqlite]
INSERT INTO event (time_us, occurred_us, scope, actor, holder, source, type, subject, session_id, state,
                   stream, version, summary, data, git_dir, origin, salt)
VALUES (:time_us, :occurred_us, :scope, :actor, :holder, :source, :type, :subject, :session_id, :state,
        :stream, :version, :summary, :data, :git_dir, :origin, :salt)

-- On PostgreSQL a row also says which account of the server wrote it: the default of db_user, which no role sets.
-- name: append [postgres]
INSERT INTO event (time_us, occurred_us, scope, actor, holder, source, type, subject, session_id, state,
                   stream, version, summary, data, git_dir, origin, salt)
VALUES (:time_us, :occurred_us, :scope, :actor, :holder, :source, :type, :subject, :session_id, :state,
        :stream, :version, :summary, :data, :git_dir, :origin, :salt)
RETURNING seq

-- name: by_seq
SELECT {columns:event}, git_dir, origin, salt
FROM event
WHERE seq = :seq

-- name: newest
SELECT {columns:event}, git_dir, origin, salt
FROM event
ORDER BY seq DESC
LIMIT 1

-- name: newest_about
SELECT {columns:event}, git_dir, origin, salt
FROM event
WHERE subject = :subject
ORDER BY seq DESC
LIMIT 1

-- name: about
SELECT {columns:event}
FROM event
WHERE subject = :subject AND seq > :seq
ORDER BY seq
LIMIT :limit

-- name: settled
SELECT value FROM meta WHERE key = 'settled_seq'

-- On SQLite one writer commits at a time, so numbers become visible in their order.
-- name: tail [sqlite]
SELECT seq, '' AS xid, time_us, occurred_us, scope, actor, holder, source, type, subject, session_id, state,
       stream, version, summary, data, git_dir, origin
FROM event
WHERE seq > :seq
ORDER BY seq
LIMIT :limit

-- On PostgreSQL a lower number may become visible after a higher one. Rows are read in the order
-- of their transactions, and only up to the oldest transaction that is still running. ORDER BY
-- names the table's column: the answer's own `xid` is text, in which 999 comes after 1000.
-- name: tail [postgres]
SELECT seq, CAST(xid AS text) AS xid, time_us, occurred_us, scope, actor, holder, source, type, subject, session_id,
       state, stream, version, summary, data, git_dir, origin
FROM event
WHERE (xid, seq) > (CAST(:xid AS xid8), :seq) AND seq > :floor
  AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY event.xid, event.seq
LIMIT :limit

-- Rows that a move brought, for a cursor that moved with them.
-- name: tail_settled [sqlite]
SELECT seq, CAST(COALESCE(xid, 0) AS text) AS xid, time_us, occurred_us, scope, actor, holder, source, type, subject,
       session_id, state, stream, version, summary, data, git_dir, origin
FROM event
WHERE (COALESCE(xid, 0), seq) > (CAST(:xid AS integer), :seq) AND seq > :floor AND seq <= :ceiling
ORDER BY COALESCE(event.xid, 0), event.seq
LIMIT :limit

-- The same rows for a cursor of SQLite, on either engine.
-- name: tail_by_number
SELECT seq, '' AS xid, time_us, occurred_us, scope, actor, holder, source, type, subject, session_id, state,
       stream, version, summary, data, git_dir, origin
FROM event
WHERE seq > :seq AND seq > :floor AND seq <= :ceiling
ORDER BY seq
LIMIT :limit

-- Rows that were written on another cluster. Their transaction numbers can be compared only with one another. All of
-- them are visible, so there is no horizon to wait for.
-- name: tail_settled [postgres]
SELECT seq, CAST(xid AS text) AS xid, time_us, occurred_us, scope, actor, holder, source, type, subject, session_id,
       state, stream, version, summary, data, git_dir, origin
FROM event
WHERE (xid, seq) > (CAST(:xid AS xid8), :seq) AND seq > :floor AND seq <= :ceiling
ORDER BY event.xid, event.seq
LIMIT :limit

-- The place of a row that came from SQLite, whose cursors have no transaction number.
-- name: place [sqlite]
SELECT '' AS xid FROM event WHERE seq = :seq

-- name: place [postgres]
SELECT CAST(xid AS text) AS xid FROM event WHERE seq = :seq

-- name: last [sqlite]
SELECT seq, '' AS xid FROM event WHERE seq > :floor ORDER BY seq DESC LIMIT 1

-- The newest row below the horizon: rows with earlier times may still appear above it.
-- name: last [postgres]
SELECT seq, CAST(xid AS text) AS xid
FROM event
WHERE seq > :floor AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY event.xid DESC, event.seq DESC
LIMIT 1

-- The newest row of a settled segment: no horizon, see tail_settled.
-- name: last_settled [sqlite]
SELECT seq, '' AS xid FROM event WHERE seq > :floor AND seq <= :ceiling ORDER BY seq DESC LIMIT 1

-- name: last_settled [postgres]
SELECT seq, CAST(xid AS text) AS xid
FROM event
WHERE seq > :floor AND seq <= :ceiling
ORDER BY event.xid DESC, event.seq DESC
LIMIT 1
