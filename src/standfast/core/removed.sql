-- Before-images. An image belongs to the newest journal row of its own transaction.

-- On SQLite one transaction writes at a time: the newest row is its own.
-- name: keep [sqlite]
INSERT INTO removed (id, event_seq, table_name, row_key, old_values, new_values, size_bytes, removed_us)
VALUES (:id, (SELECT max(seq) FROM event), :table_name, :row_key, :old_values, :new_values, :size_bytes, :now_us)

-- On PostgreSQL other transactions write newer rows meanwhile.
-- name: keep [postgres]
INSERT INTO removed (id, event_seq, table_name, row_key, old_values, new_values, size_bytes, removed_us)
VALUES (:id, (SELECT max(seq) FROM event WHERE xid = pg_current_xact_id()), :table_name, :row_key, :old_values,
        :new_values, :size_bytes, :now_us)

-- name: purge
DELETE FROM removed
WHERE removed_us < :month_ago_us
   OR (removed_us < :day_ago_us
       AND removed_us <= (SELECT max(removed_us)
                          FROM (SELECT removed_us, sum(size_bytes) OVER (ORDER BY removed_us DESC, id DESC) AS total
                                FROM removed) AS counted
                          WHERE total > :bytes_max))
