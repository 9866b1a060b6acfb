-- Imported sources, with their paths and the position reached.

-- name: source
SELECT {columns:import_source}
FROM import_source
WHERE agent = :agent AND host = :host AND path = :path

-- name: add
INSERT INTO import_source (id, agent, host, path, state, identity, head, size_bytes, mtime_us, upto, generation,
                           reader, carry, counts, created_us, updated_us)
VALUES (:id, :agent, :host, :path, 'current', :identity, :head, :size_bytes, :mtime_us, 0, 1, :reader, '{}', '{}',
        :now_us, :now_us)
ON CONFLICT (agent, host, path) DO NOTHING

-- Read again from the start: the file is another one now, or the reader understands more.
-- name: restart
UPDATE import_source
SET upto = 0, generation = generation + 1, reader = :reader, carry = :carry, counts = '{}', identity = :identity,
    head = :head, size_bytes = :size_bytes, mtime_us = :mtime_us, state = 'current', note = :note,
    updated_us = :now_us
WHERE seq = :seq AND generation = :generation AND upto = :upto
RETURNING seq

-- A packed file tells its length only when it was read to its end: now it was. Not journalled: a read mark.
-- name: settle
UPDATE import_source SET identity = :identity, mtime_us = :mtime_us, size_bytes = upto
WHERE seq = :seq AND generation = :generation AND upto = :upto

-- name: mark
UPDATE import_source SET state = :state, note = :note, updated_us = :now_us
WHERE seq = :seq AND state <> :state
RETURNING id, session_id, counts

-- name: page
SELECT {columns:import_source}
FROM import_source
WHERE (:agent = '' OR agent = :agent) AND seq > :after
ORDER BY seq
LIMIT :limit

-- name: tally
SELECT (SELECT COUNT(*) FROM tool_call WHERE import_seq = :seq AND called_us IS NOT NULL) AS tool_calls,
       (SELECT COUNT(*) FROM tool_call WHERE import_seq = :seq AND answered_us IS NOT NULL) AS tool_results,
       (SELECT COUNT(*) FROM tool_call
        WHERE import_seq = :seq AND called_us IS NOT NULL AND answered_us IS NULL) AS unanswered_calls,
       (SELECT COUNT(*) FROM tool_call WHERE import_seq = :seq AND called_us IS NULL) AS orphan_results,
       (SELECT COUNT(*) FROM usage WHERE import_seq = :seq) AS api_responses,
       (SELECT COALESCE(SUM(input_tokens), 0) FROM usage WHERE import_seq = :seq) AS input_tokens,
       (SELECT COALESCE(SUM(cached_input_tokens), 0) FROM usage WHERE import_seq = :seq) AS cached_input_tokens,
       (SELECT COALESCE(SUM(cache_write_tokens), 0) FROM usage WHERE import_seq = :seq) AS cache_write_tokens,
       (SELECT COALESCE(SUM(output_tokens), 0) FROM usage WHERE import_seq = :seq) AS output_tokens,
       (SELECT COALESCE(SUM(reasoning_tokens), 0) FROM usage WHERE import_seq = :seq) AS reasoning_tokens

-- name: origin
SELECT import_seq, import_offset FROM message WHERE id = :id

-- The newest batch that holds an offset.
-- name: raw_at
SELECT generation, from_offset, upto, raw FROM import_batch
WHERE import_seq = :seq AND from_offset <= :offset AND upto > :offset
ORDER BY generation DESC
LIMIT 1

-- name: learn_head
UPDATE import_source SET head = :head WHERE seq = :seq AND generation = :generation
