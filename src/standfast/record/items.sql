-- Items by path and key. Expired ones are not returned.

-- name: get
SELECT path, key, value, created_us, updated_us, ttl_us, expires_us - :now_us AS left_us FROM item
WHERE scope = :scope AND path = :path AND key = :key AND (expires_us IS NULL OR expires_us > :now_us)

-- An item that replaces an expired one counts as new.
-- name: put
INSERT INTO item (scope, path, key, value, created_us, updated_us, ttl_us, expires_us, git_dir, origin)
VALUES (:scope, :path, :key, :value, :now_us, :now_us, :ttl_us, :expires_us, :git_dir, :origin)
ON CONFLICT (scope, path, key) DO UPDATE
SET value = :value, updated_us = :now_us, ttl_us = :ttl_us, expires_us = :expires_us,
    created_us = CASE WHEN item.expires_us <= :now_us THEN :now_us ELSE item.created_us END

-- name: delete
DELETE FROM item WHERE scope = :scope AND path = :path AND key = :key

-- name: image
SELECT {columns:item}, (SELECT count(*) FROM item_vector WHERE item_seq = item.seq) AS vectors
FROM item
WHERE scope = :scope AND path = :path AND key = :key
{for_update}

-- name: vector_images
SELECT {columns:item_vector}
FROM item_vector
WHERE item_seq = (SELECT seq FROM item WHERE scope = :scope AND path = :path AND key = :key)
ORDER BY field

-- name: refresh
UPDATE item SET expires_us = :now_us + ttl_us
WHERE scope = :scope AND path = :path AND key = :key AND ttl_us IS NOT NULL AND expires_us > :now_us

-- name: paths
SELECT DISTINCT path FROM item WHERE scope = :scope AND (expires_us IS NULL OR expires_us > :now_us) ORDER BY path

-- A path and all paths below it are adjacent: its JSON text ends with a bracket where theirs continue with a comma.
-- name: page
SELECT path, key, value, created_us, updated_us, ttl_us, expires_us - :now_us AS left_us FROM item
WHERE scope = :scope AND (path, key) > (:after_path, :after_key) AND path <= :upto_path
  AND (expires_us IS NULL OR expires_us > :now_us)
ORDER BY path, key
LIMIT :limit

-- name: drop_vectors
DELETE FROM item_vector
WHERE item_seq = (SELECT seq FROM item WHERE scope = :scope AND path = :path AND key = :key)

-- name: put_vector
INSERT INTO item_vector (item_seq, field, vector)
SELECT seq, CAST(:field AS TEXT), :vector FROM item WHERE scope = :scope AND path = :path AND key = :key

-- name: vectors
SELECT i.path AS path, i.key AS key, i.value AS value, i.created_us AS created_us, i.updated_us AS updated_us,
       i.ttl_us AS ttl_us, i.expires_us - :now_us AS left_us, v.field AS field, v.vector AS vector
FROM item i JOIN item_vector v ON v.item_seq = i.seq
WHERE i.scope = :scope AND (i.path, i.key) >= (:after_path, :after_key) AND i.path <= :upto_path
  AND (i.path <> :after_path OR i.key <> :after_key OR v.field > :after_field)
  AND (i.expires_us IS NULL OR i.expires_us > :now_us)
ORDER BY i.path, i.key, v.field
LIMIT :limit

-- pgvector reads this column. On SQLite, standfast compares `vector`.
-- name: fill_vector [sqlite]
SELECT 1

-- name: fill_vector [postgres]
UPDATE item_vector SET embedding = CAST(CAST(:embedding AS text) AS real[]) WHERE seq = :seq

-- Rows of an older version, a restore or a move have only `vector`.
-- name: unfilled_vectors [sqlite]
SELECT seq, vector FROM item_vector WHERE 0 = :limit

-- name: unfilled_vectors [postgres]
SELECT seq, vector FROM item_vector WHERE embedding IS NULL ORDER BY seq LIMIT :limit

-- name: other_size
SELECT length(v.vector) AS size
FROM item i JOIN item_vector v ON v.item_seq = i.seq
WHERE i.scope = :scope AND (i.path, i.key) >= (:after_path, '') AND i.path <= :upto_path AND length(v.vector) <> :size
LIMIT 1

-- sqlite-vec compares directions; the first 8 bytes are the length. A vector of zeros has the nearness 0.
-- name: nearest [sqlite]
SELECT i.path AS path, i.key AS key, i.value AS value, i.created_us AS created_us, i.updated_us AS updated_us,
       i.ttl_us AS ttl_us, i.expires_us - :now_us AS left_us,
       COALESCE(1.0 - vec_distance_cosine(substr(v.vector, 9), :vector), 0.0) AS nearness
FROM item i JOIN item_vector v ON v.item_seq = i.seq
WHERE i.scope = :scope AND (i.path, i.key) >= (:after_path, '') AND i.path <= :upto_path
  AND (i.expires_us IS NULL OR i.expires_us > :now_us)
ORDER BY nearness DESC, i.path, i.key
LIMIT :limit OFFSET :offset

-- pgvector compares the directions.
-- name: nearest [postgres]
SELECT i.path AS path, i.key AS key, i.value AS value, i.created_us AS created_us, i.updated_us AS updated_us,
       i.ttl_us AS ttl_us, i.expires_us - :now_us AS left_us,
       COALESCE(1.0 - NULLIF(CAST(v.embedding AS vector) <=> CAST(CAST(:vector AS text) AS vector),
                             CAST('NaN' AS double precision)), 0.0) AS nearness
FROM item i JOIN item_vector v ON v.item_seq = i.seq
WHERE i.scope = :scope AND (i.path, i.key) >= (:after_path, '') AND i.path <= :upto_path
  AND (i.expires_us IS NULL OR i.expires_us > :now_us)
ORDER BY nearness DESC, i.path, i.key
LIMIT :limit OFFSET :offset

-- name: sweep
DELETE FROM item
WHERE seq IN (SELECT seq FROM item WHERE scope = :scope AND expires_us <= :now_us ORDER BY expires_us LIMIT :limit)
RETURNING path, key
