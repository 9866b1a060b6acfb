-- Imported sources: their paths and positions.

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

-- Start again at the beginning: the file was replaced, or a newer reader understands more.
-- name: restart
UPDATE import_source
SET upto = 0, generation = generation + 1, reader = :reader, carry = :carry, counts = '{}', identity = :identity,
    head = :head, size_bytes = :size_bytes, mtime_us = :mtime_us, state = 'current', note = :note,
    updated_us = :now_us
WHERE seq = :seq AND generation = :generation AND upto = :upto
RETURNING seq

-- The length of a packed file is known only at its end. Not journalled: it changes no record.
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
