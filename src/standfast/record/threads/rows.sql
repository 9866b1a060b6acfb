-- Threads of graphs. A caller that changes a thread locks its row first. So no caller adds to a checkpoint that
-- another one deletes.

-- name: hold
SELECT seq, id, life, deleted_us FROM thread WHERE scope = :scope AND key = :key {for_update}

-- Tasks of one step write at the same time. Only a caller that deletes the thread waits for them.
-- name: share
SELECT seq, id, life, deleted_us FROM thread WHERE scope = :scope AND key = :key

-- SQLite has one writer and needs no lock.
-- name: share [postgres]
SELECT seq, id, life, deleted_us FROM thread WHERE scope = :scope AND key = :key FOR SHARE

-- `updated_us` changes at most once a second: it is in an index, and PostgreSQL writes an entry into every index when
-- an indexed column changes.
-- name: touch
UPDATE thread
SET updated_us = CASE WHEN :now_us - updated_us BETWEEN 0 AND 999999 THEN updated_us ELSE CAST(:now_us AS BIGINT) END
WHERE scope = :scope AND key = :key
RETURNING seq, id, life, deleted_us

-- name: begin
INSERT INTO thread (id, scope, key, life, created_us, updated_us, deleted_us, git_dir, origin)
VALUES (:id, :scope, :key, 1, :now_us, :now_us, :deleted_us, :git_dir, :origin)
ON CONFLICT (scope, key) DO NOTHING
RETURNING seq, id, life, deleted_us

-- name: find
SELECT seq, id, life, deleted_us FROM thread WHERE scope = :scope AND key = :key

-- name: revive
UPDATE thread SET deleted_us = NULL, life = life + 1, updated_us = :now_us WHERE seq = :seq

-- name: bury
UPDATE thread SET deleted_us = :now_us, updated_us = :now_us WHERE seq = :seq

-- name: page
SELECT t.id AS id, t.scope AS scope, t.key AS key, t.life AS life, t.created_us AS created_us,
       t.updated_us AS updated_us,
       (SELECT COUNT(*) FROM thread_checkpoint c WHERE c.thread_seq = t.seq) AS checkpoints
FROM thread t
WHERE t.scope = :scope AND t.deleted_us IS NULL AND t.updated_us < :before_us
ORDER BY t.updated_us DESC, t.seq DESC
LIMIT :limit

-- name: latest
SELECT checkpoint_id FROM thread_checkpoint WHERE thread_seq = :thread_seq AND namespace = :namespace
ORDER BY checkpoint_id DESC LIMIT 1

-- name: parts
SELECT parts FROM thread_checkpoint
WHERE thread_seq = :thread_seq AND namespace = :namespace AND checkpoint_id = :checkpoint_id

-- name: put
INSERT INTO thread_checkpoint (thread_seq, namespace, checkpoint_id, parent_id, run_id, header, parts, metadata,
                               created_us)
VALUES (:thread_seq, :namespace, :checkpoint_id, :parent_id, :run_id, :header, :parts, :metadata, :now_us)
ON CONFLICT (thread_seq, namespace, checkpoint_id) DO UPDATE
SET parent_id = :parent_id, run_id = :run_id, header = :header, parts = :parts, metadata = :metadata

-- name: put_value
INSERT INTO thread_value (thread_seq, segment, n, type, data)
VALUES (:thread_seq, :segment, 0, :type, :data)

-- Insert the piece only directly after the value it was compared with, if no other process has added a piece there.
-- name: put_piece
INSERT INTO thread_value (thread_seq, segment, n, type, data)
SELECT v.thread_seq, v.segment, v.n + 1, CAST(:type AS TEXT), :data
FROM thread_value v
WHERE v.thread_seq = :thread_seq AND v.segment = :segment AND v.n = :after AND v.type <> 'closed'
ON CONFLICT (thread_seq, segment, n) DO NOTHING
RETURNING n

-- name: put_write
INSERT INTO thread_write (thread_seq, namespace, checkpoint_id, task_id, task_path, idx, channel, type, data)
VALUES (:thread_seq, :namespace, :checkpoint_id, :task_id, :task_path, :idx, :channel, :type, :data)
ON CONFLICT (thread_seq, namespace, checkpoint_id, task_id, idx) DO NOTHING

-- name: replace_write
INSERT INTO thread_write (thread_seq, namespace, checkpoint_id, task_id, task_path, idx, channel, type, data)
VALUES (:thread_seq, :namespace, :checkpoint_id, :task_id, :task_path, :idx, :channel, :type, :data)
ON CONFLICT (thread_seq, namespace, checkpoint_id, task_id, idx) DO UPDATE
SET task_path = :task_path, channel = :channel, type = :type, data = :data

-- name: get
SELECT namespace, checkpoint_id, parent_id, header, parts, metadata
FROM thread_checkpoint
WHERE thread_seq = :thread_seq AND namespace = :namespace AND checkpoint_id = :checkpoint_id

-- name: get_latest
SELECT namespace, checkpoint_id, parent_id, header, parts, metadata
FROM thread_checkpoint
WHERE thread_seq = :thread_seq AND namespace = :namespace
ORDER BY checkpoint_id DESC LIMIT 1

-- name: pieces
SELECT n, type, data FROM thread_value
WHERE thread_seq = :thread_seq AND segment = :segment AND n <= :n
ORDER BY n

-- name: writes
SELECT task_id, task_path, idx, channel, type, data FROM thread_write
WHERE thread_seq = :thread_seq AND namespace = :namespace AND checkpoint_id = :checkpoint_id

-- The newest first. Two threads or namespaces may have the same checkpoint id, so `seq` decides.
-- name: list
SELECT c.seq AS seq, c.thread_seq AS thread_seq, t.key AS key, c.namespace AS namespace,
       c.checkpoint_id AS checkpoint_id, c.parent_id AS parent_id, c.header AS header, c.parts AS parts,
       c.metadata AS metadata
FROM thread_checkpoint c JOIN thread t ON t.seq = c.thread_seq
WHERE t.scope = :scope AND t.deleted_us IS NULL
  AND (c.checkpoint_id < :before OR :before = '')
  AND (:upto = '' OR c.checkpoint_id < :upto OR (c.checkpoint_id = :upto AND c.seq < :upto_seq))
ORDER BY c.checkpoint_id DESC, c.seq DESC
LIMIT :limit

-- name: list_thread
SELECT c.seq AS seq, c.thread_seq AS thread_seq, c.namespace AS namespace, c.checkpoint_id AS checkpoint_id,
       c.parent_id AS parent_id, c.header AS header, c.parts AS parts, c.metadata AS metadata
FROM thread_checkpoint c
WHERE c.thread_seq = :thread_seq
  AND (c.checkpoint_id < :before OR :before = '')
  AND (:upto = '' OR c.checkpoint_id < :upto OR (c.checkpoint_id = :upto AND c.seq < :upto_seq))
ORDER BY c.checkpoint_id DESC, c.seq DESC
LIMIT :limit

-- name: list_namespace
SELECT c.seq AS seq, c.thread_seq AS thread_seq, c.namespace AS namespace, c.checkpoint_id AS checkpoint_id,
       c.parent_id AS parent_id, c.header AS header, c.parts AS parts, c.metadata AS metadata
FROM thread_checkpoint c
WHERE c.thread_seq = :thread_seq AND c.namespace = :namespace
  AND (c.checkpoint_id < :before OR :before = '')
  AND (:upto = '' OR c.checkpoint_id < :upto OR (c.checkpoint_id = :upto AND c.seq < :upto_seq))
ORDER BY c.checkpoint_id DESC, c.seq DESC
LIMIT :limit

-- name: chain
WITH RECURSIVE chain (checkpoint_id, parent_id, parts, depth) AS (
    SELECT c.checkpoint_id, c.parent_id, c.parts, 0
    FROM thread_checkpoint c
    WHERE c.thread_seq = :thread_seq AND c.namespace = :namespace AND c.checkpoint_id = :checkpoint_id
    UNION ALL
    SELECT c.checkpoint_id, c.parent_id, c.parts, chain.depth + 1
    FROM chain JOIN thread_checkpoint c
      ON c.thread_seq = :thread_seq AND c.namespace = :namespace AND c.checkpoint_id = chain.parent_id
    WHERE chain.depth < :limit
)
SELECT checkpoint_id, parent_id, parts FROM chain ORDER BY depth

-- PostgreSQL wants both halves of a recursion in one collation.
-- name: chain [postgres]
WITH RECURSIVE chain (checkpoint_id, parent_id, parts, depth) AS (
    SELECT c.checkpoint_id, c.parent_id, c.parts, 0
    FROM thread_checkpoint c
    WHERE c.thread_seq = :thread_seq AND c.namespace = :namespace AND c.checkpoint_id = :checkpoint_id
    UNION ALL
    SELECT c.checkpoint_id, c.parent_id, c.parts, chain.depth + 1
    FROM chain JOIN thread_checkpoint c
      ON c.thread_seq = :thread_seq AND c.namespace = :namespace
     AND c.checkpoint_id = chain.parent_id COLLATE "C"
    WHERE chain.depth < :limit
)
SELECT checkpoint_id, parent_id, parts FROM chain ORDER BY depth

-- name: channel_writes
SELECT checkpoint_id, task_id, task_path, idx, channel, type, data FROM thread_write
WHERE thread_seq = :thread_seq AND namespace = :namespace AND channel = :channel
  AND checkpoint_id >= :oldest AND checkpoint_id <= :newest

-- name: headers
SELECT seq, namespace, checkpoint_id, parent_id, parts FROM thread_checkpoint WHERE thread_seq = :thread_seq

-- name: of_run
SELECT t.key AS key, c.seq AS seq, c.thread_seq AS thread_seq, c.namespace AS namespace,
       c.checkpoint_id AS checkpoint_id
FROM thread_checkpoint c JOIN thread t ON t.seq = c.thread_seq
WHERE c.run_id = :run_id AND t.scope = :scope
ORDER BY t.key

-- name: drop_checkpoint
DELETE FROM thread_checkpoint WHERE seq = :seq

-- name: drop_writes
DELETE FROM thread_write
WHERE thread_seq = :thread_seq AND namespace = :namespace AND checkpoint_id = :checkpoint_id

-- name: segments
SELECT segment, MAX(n) AS n FROM thread_value WHERE thread_seq = :thread_seq AND type <> 'closed' GROUP BY segment

-- name: drop_pieces
DELETE FROM thread_value WHERE thread_seq = :thread_seq AND segment = :segment AND n > :n

-- A segment is closed if its end was deleted or another thread continues it. So no reference ever names two values.
-- name: close
INSERT INTO thread_value (thread_seq, segment, n, type, data)
VALUES (:thread_seq, :segment, :n, 'closed', :nothing)
ON CONFLICT (thread_seq, segment, n) DO NOTHING

-- name: close_copies
INSERT INTO thread_value (thread_seq, segment, n, type, data)
SELECT v.thread_seq, v.segment, MAX(v.n) + 1, 'closed', :nothing
FROM thread_value v
WHERE v.thread_seq = :target AND v.type <> 'closed'
  AND v.segment IN (SELECT o.segment FROM thread_value o WHERE o.thread_seq = :source)
GROUP BY v.thread_seq, v.segment
ON CONFLICT (thread_seq, segment, n) DO NOTHING

-- name: checkpoint_images
SELECT {columns:thread_checkpoint} FROM thread_checkpoint WHERE thread_seq = :thread_seq ORDER BY seq

-- name: value_images
SELECT {columns:thread_value} FROM thread_value WHERE thread_seq = :thread_seq ORDER BY seq

-- name: write_images
SELECT {columns:thread_write} FROM thread_write WHERE thread_seq = :thread_seq ORDER BY seq

-- name: drop_all_checkpoints
DELETE FROM thread_checkpoint WHERE thread_seq = :thread_seq

-- name: drop_all_values
DELETE FROM thread_value WHERE thread_seq = :thread_seq

-- name: drop_all_writes
DELETE FROM thread_write WHERE thread_seq = :thread_seq

-- name: copy_checkpoints
INSERT INTO thread_checkpoint (thread_seq, namespace, checkpoint_id, parent_id, run_id, header, parts, metadata,
                               created_us)
SELECT :target, c.namespace, c.checkpoint_id, c.parent_id, c.run_id, c.header, c.parts, c.metadata, c.created_us
FROM thread_checkpoint c
WHERE c.thread_seq = :source
ORDER BY c.seq
ON CONFLICT (thread_seq, namespace, checkpoint_id) DO NOTHING

-- name: copy_values
INSERT INTO thread_value (thread_seq, segment, n, type, data)
SELECT :target, v.segment, v.n, v.type, v.data FROM thread_value v
WHERE v.thread_seq = :source
ORDER BY v.seq
ON CONFLICT (thread_seq, segment, n) DO UPDATE SET type = excluded.type, data = excluded.data
WHERE thread_value.type = 'closed'

-- name: copy_writes
INSERT INTO thread_write (thread_seq, namespace, checkpoint_id, task_id, task_path, idx, channel, type, data)
SELECT :target, w.namespace, w.checkpoint_id, w.task_id, w.task_path, w.idx, w.channel, w.type, w.data
FROM thread_write w
WHERE w.thread_seq = :source
ORDER BY w.seq
ON CONFLICT (thread_seq, namespace, checkpoint_id, task_id, idx) DO NOTHING
