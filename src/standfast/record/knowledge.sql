-- Knowledge: texts that agents learned, found by words and by vectors.

-- One row per agent, text and source. If no row is returned, the text exists already.
-- name: add
INSERT INTO knowledge (id, scope, git_dir, origin, agent, tags, stale_us, created_us, actor, session_id, source, hash,
                       text, words, embedder, dimensions, vector)
VALUES (:id, :scope, :git_dir, :origin, :agent, :tags, :stale_us, :now_us, :actor, :session_id, :source, :hash,
        :text, :words, :embedder, :dimensions, :vector)
ON CONFLICT (scope, agent, hash) DO NOTHING
RETURNING {columns:knowledge}

-- name: same
SELECT {columns:knowledge}
FROM knowledge
WHERE scope = :scope AND agent = :agent AND hash = :hash

-- Adds the vector to a text without one.
-- name: embed
UPDATE knowledge SET embedder = :embedder, dimensions = :dimensions, vector = :vector
WHERE seq = :seq AND vector IS NULL
RETURNING {columns:knowledge}

-- pgvector reads this column. On SQLite, standfast compares `vector`.
-- name: fill [sqlite]
SELECT 1

-- name: fill [postgres]
UPDATE knowledge SET embedding = CAST(CAST(:embedding AS text) AS real[]) WHERE seq = :seq

-- Rows that came by a restore or a move have only `vector`.
-- name: unfilled [sqlite]
SELECT seq, vector FROM knowledge WHERE 0 = :limit

-- name: unfilled [postgres]
SELECT seq, vector FROM knowledge WHERE vector IS NOT NULL AND embedding IS NULL ORDER BY seq LIMIT :limit

-- name: embedded
SELECT id, embedder, dimensions
FROM knowledge
WHERE scope = :scope AND vector IS NOT NULL
ORDER BY seq DESC
LIMIT 1

-- name: by_seq
SELECT {columns:knowledge} FROM knowledge WHERE seq = :seq

-- name: image
SELECT {columns:knowledge}, git_dir, origin, hash, words, vector
FROM knowledge
WHERE id = :id
{for_update}

-- name: supersede
UPDATE knowledge SET superseded_by = :by WHERE id = :id AND superseded_by IS NULL RETURNING seq

-- A text whose successor was deleted is current again.
-- name: restore
UPDATE knowledge SET superseded_by = NULL WHERE superseded_by = :by RETURNING id

-- name: delete
DELETE FROM knowledge WHERE id = :id RETURNING seq

-- name: page
SELECT {columns:knowledge:k}
FROM knowledge k
WHERE k.scope = :scope AND {here:k}
  AND (CAST(:agent AS text) IS NULL OR k.agent = :agent) AND k.tags LIKE :tags ESCAPE '!'
  AND (CAST(:superseded AS integer) = 1 OR k.superseded_by IS NULL)
  AND (CAST(:after AS text) IS NULL OR k.seq < (SELECT a.seq FROM knowledge a WHERE a.id = :after))
ORDER BY k.seq DESC
LIMIT :limit

-- FTS5 ranks by the frequency of words.
-- name: by_words [sqlite]
SELECT k.seq AS seq
FROM knowledge_words w JOIN knowledge k ON k.seq = w.rowid
WHERE knowledge_words MATCH :words AND k.scope = :scope AND {here:k}
  AND (CAST(:agent AS text) IS NULL OR k.agent = :agent) AND k.tags LIKE :tags ESCAPE '!'
  AND (CAST(:superseded AS integer) = 1 OR k.superseded_by IS NULL)
ORDER BY bm25(knowledge_words), k.seq DESC
LIMIT :limit

-- PostgreSQL ranks in its own way. The expression is that of the index.
-- name: by_words [postgres]
SELECT k.seq AS seq
FROM knowledge k
WHERE array_to_tsvector(string_to_array(k.words, ' ')) @@ CAST(:words AS tsquery) AND k.scope = :scope AND {here:k}
  AND (CAST(:agent AS text) IS NULL OR k.agent = :agent) AND k.tags LIKE :tags ESCAPE '!'
  AND (CAST(:superseded AS integer) = 1 OR k.superseded_by IS NULL)
ORDER BY ts_rank(array_to_tsvector(string_to_array(k.words, ' ')), CAST(:words AS tsquery), 1) DESC, k.seq DESC
LIMIT :limit

-- sqlite-vec compares directions; the first 8 bytes are the length.
-- name: by_vector [sqlite]
SELECT k.seq AS seq
FROM knowledge k
WHERE k.vector IS NOT NULL AND k.dimensions = :dimensions AND k.scope = :scope AND {here:k}
  AND (CAST(:agent AS text) IS NULL OR k.agent = :agent) AND k.tags LIKE :tags ESCAPE '!'
  AND (CAST(:superseded AS integer) = 1 OR k.superseded_by IS NULL)
ORDER BY vec_distance_cosine(substr(k.vector, 9), :vector), k.seq DESC
LIMIT :limit

-- An HNSW index needs the number of dimensions in the text: `vector(16)` is replaced by the right one.
-- name: by_vector [postgres]
SELECT k.seq AS seq
FROM knowledge k
WHERE k.dimensions = :dimensions AND k.scope = :scope AND {here:k}
  AND (CAST(:agent AS text) IS NULL OR k.agent = :agent) AND k.tags LIKE :tags ESCAPE '!'
  AND (CAST(:superseded AS integer) = 1 OR k.superseded_by IS NULL)
ORDER BY CAST(k.embedding AS vector(16)) <=> CAST(CAST(:vector AS text) AS vector(16))
LIMIT :limit

-- name: vectors
SELECT k.seq AS seq, k.vector AS vector
FROM knowledge k
WHERE k.vector IS NOT NULL AND k.dimensions = :dimensions AND k.scope = :scope AND {here:k}
  AND (CAST(:agent AS text) IS NULL OR k.agent = :agent) AND k.tags LIKE :tags ESCAPE '!'
  AND (CAST(:superseded AS integer) = 1 OR k.superseded_by IS NULL)
ORDER BY k.seq DESC
LIMIT :limit
