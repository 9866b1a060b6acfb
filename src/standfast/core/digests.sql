-- Digests of the journal, one for each stretch of rows.

-- name: last
SELECT n, upto_seq, hash FROM digest ORDER BY n DESC LIMIT 1

-- name: next
SELECT n, upto_seq, hash, marks FROM digest WHERE n > :n ORDER BY n LIMIT 1

-- name: put
INSERT INTO digest (n, upto_seq, hash, marks, created_us)
VALUES (:n, :upto_seq, :hash, :marks, :now_us)
ON CONFLICT (n) DO NOTHING

-- On SQLite one writer commits at a time: no row can come before one that is visible.
-- name: stretch [sqlite]
SELECT {columns:event}, git_dir, origin, salt, db_user, 1 AS settled
FROM event
WHERE seq > :seq
ORDER BY seq
LIMIT :limit

-- On PostgreSQL a running transaction may hold a lower number. Rows up to `floor` were written on another cluster.
-- name: stretch [postgres]
SELECT {columns:event}, git_dir, origin, salt, db_user,
       CASE WHEN seq <= :floor OR (xid < pg_snapshot_xmin(pg_current_snapshot()) AND time_us < :before_us)
            THEN 1 ELSE 0 END AS settled
FROM event
WHERE seq > :seq
ORDER BY seq
LIMIT :limit

-- name: between
SELECT {columns:event}, git_dir, origin, salt, db_user
FROM event
WHERE seq > :seq AND seq <= :upto_seq
ORDER BY seq

-- name: count_after
SELECT count(*) AS n FROM event WHERE seq > :seq
