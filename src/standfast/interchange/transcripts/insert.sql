-- One batch of imported records and the new position of their source, in one transaction.

-- The lock makes batches run one after the other, so of two importers the second finds a record stored.
-- name: turn
SELECT key FROM meta WHERE key = 'store_id' {for_update}

-- name: advance
UPDATE import_source
SET upto = :upto, carry = :carry, counts = :counts, native_id = COALESCE(:native_id, native_id),
    session_id = COALESCE(session_id, :session_id), identity = :identity, head = :head, size_bytes = :size_bytes,
    mtime_us = :mtime_us, state = 'current', note = :note, updated_us = :now_us,
    first_us = CASE WHEN first_us IS NULL OR first_us > :first_us THEN COALESCE(:first_us, first_us) ELSE first_us END,
    last_us = CASE WHEN last_us IS NULL OR last_us < :last_us THEN COALESCE(:last_us, last_us) ELSE last_us END
WHERE seq = :seq AND upto = :start AND generation = :generation
RETURNING seq

-- The stored records among a JSON list of natives. SQLite and PostgreSQL expand JSON lists by different functions.
-- name: known [sqlite]
SELECT native, hash, position, retracted_us FROM message
WHERE native IN (SELECT value FROM json_each(:natives))

-- name: known [postgres]
SELECT native, hash, position, retracted_us FROM message
WHERE native = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:natives AS jsonb))))

-- An imported session that no process holds has the time of its last record.
-- name: touch_session
UPDATE session
SET preview = COALESCE(preview, :preview),
    updated_us = CASE WHEN holder IS NULL AND state = 'completed' AND updated_us < :last_us THEN :last_us
                      ELSE updated_us END,
    ended_us = CASE WHEN holder IS NULL AND state = 'completed' AND ended_us < :last_us THEN :last_us ELSE ended_us END
WHERE id = :id

-- name: take_positions
UPDATE node SET next_position = next_position + :count WHERE id = :node_id
RETURNING next_position - :count AS position

-- name: message
INSERT INTO message (id, session_id, node_id, position, role, format, content, hash, actor, created_us, occurred_us,
                     native, summary, import_seq, import_offset)
VALUES (:id, :session_id, :node_id, :position, :role, :format, :content, :hash, :actor, :now_us, :occurred_us,
        :native, :summary, :import_seq, :import_offset)

-- name: revise
UPDATE message
SET role = :role, format = :format, content = :content, hash = :hash, summary = :summary, revised_us = :now_us,
    retracted_us = NULL
WHERE native = :native

-- name: restore
UPDATE message SET retracted_us = NULL WHERE native = :native AND retracted_us IS NOT NULL

-- name: retract
UPDATE message SET retracted_us = :now_us
WHERE node_id = :node_id AND position >= :position AND retracted_us IS NULL

-- The next messages of a conversation, to compare a fork with its parent.
-- name: said_behind
SELECT position, hash FROM message WHERE node_id = :node_id AND position > :position ORDER BY position LIMIT :limit

-- name: forks
SELECT s.seq AS seq, s.carry AS carry, s.counts AS counts, t.node_id AS node_id
FROM import_thread t
JOIN import_source s ON s.agent = t.agent AND s.native_id = t.native_id
WHERE t.agent = :agent AND t.forked_from = :parent

-- name: settle_fork
UPDATE import_source SET carry = :carry, counts = :counts WHERE seq = :seq

-- Delete a fork's copies of messages whose parent was imported later.
-- name: take_back
DELETE FROM message WHERE node_id = :node_id AND position <= :position AND import_seq IS NOT NULL

-- name: take_back_calls
DELETE FROM tool_call
WHERE node_id = :node_id AND position <= :position AND import_seq IS NOT NULL AND call_id IN (
    SELECT other.call_id FROM tool_call other WHERE other.session_id = :session_id)

-- name: tool_call
INSERT INTO tool_call (id, session_id, node_id, call_id, tool, status, input, output, summary, exit_code, duration_us,
                       position, source, called_us, answered_us, occurred_us, created_us, updated_us, import_seq,
                       import_offset)
VALUES (:id, :session_id, :node_id, :call_id, :tool, :status, :input, :output, :summary, :exit_code, :duration_us,
        :position, 'transcript', :called_us, :answered_us, :occurred_us, :now_us, :now_us, :import_seq,
        :import_offset)
ON CONFLICT (session_id, call_id) DO UPDATE
SET tool = COALESCE(tool_call.tool, excluded.tool),
    node_id = COALESCE(tool_call.node_id, excluded.node_id),
    input = COALESCE(tool_call.input, excluded.input),
    output = COALESCE(excluded.output, tool_call.output),
    status = CASE WHEN excluded.status IN ('unknown', 'pending')
                    OR (excluded.status = 'ok' AND tool_call.status IN ('error', 'cancelled'))
                  THEN tool_call.status ELSE excluded.status END,
    summary = COALESCE(tool_call.summary, excluded.summary),
    exit_code = COALESCE(excluded.exit_code, tool_call.exit_code),
    duration_us = COALESCE(excluded.duration_us, tool_call.duration_us),
    position = COALESCE(tool_call.position, excluded.position),
    occurred_us = CASE WHEN tool_call.called_us IS NULL AND excluded.called_us IS NOT NULL THEN excluded.called_us
                       ELSE tool_call.occurred_us END,
    called_us = COALESCE(tool_call.called_us, excluded.called_us),
    answered_us = COALESCE(tool_call.answered_us, excluded.answered_us),
    updated_us = excluded.updated_us,
    import_seq = COALESCE(tool_call.import_seq, excluded.import_seq),
    import_offset = COALESCE(tool_call.import_offset, excluded.import_offset)

-- Several records, also in forks, repeat one response. The largest value of each field is the true one.
-- name: usage_largest
INSERT INTO usage (id, session_id, node_id, response, model, input_tokens, cached_input_tokens, cache_write_tokens,
                   output_tokens, reasoning_tokens, cost_microusd, price, occurred_us, created_us,
                   import_seq)
VALUES (:id, :session_id, :node_id, :response, :model, :input_tokens, :cached_input_tokens, :cache_write_tokens,
        :output_tokens, :reasoning_tokens, :cost_microusd, :price, :occurred_us, :now_us, :import_seq)
ON CONFLICT (response) DO UPDATE
SET input_tokens = CASE WHEN excluded.input_tokens > usage.input_tokens
                        THEN excluded.input_tokens ELSE usage.input_tokens END,
    cached_input_tokens = CASE WHEN excluded.cached_input_tokens > usage.cached_input_tokens
                               THEN excluded.cached_input_tokens ELSE usage.cached_input_tokens END,
    cache_write_tokens = CASE WHEN excluded.cache_write_tokens > usage.cache_write_tokens
                              THEN excluded.cache_write_tokens ELSE usage.cache_write_tokens END,
    output_tokens = CASE WHEN excluded.output_tokens > usage.output_tokens
                         THEN excluded.output_tokens ELSE usage.output_tokens END,
    reasoning_tokens = CASE WHEN excluded.reasoning_tokens > usage.reasoning_tokens
                            THEN excluded.reasoning_tokens ELSE usage.reasoning_tokens END,
    price = CASE WHEN excluded.cost_microusd IS NULL THEN usage.price ELSE excluded.price END,
    cost_microusd = COALESCE(excluded.cost_microusd, usage.cost_microusd)

-- The newest record of a running total counts.
-- name: usage_newest
INSERT INTO usage (id, session_id, node_id, response, model, input_tokens, cached_input_tokens, cache_write_tokens,
                   output_tokens, reasoning_tokens, cost_microusd, price, occurred_us, created_us,
                   import_seq)
VALUES (:id, :session_id, :node_id, :response, :model, :input_tokens, :cached_input_tokens, :cache_write_tokens,
        :output_tokens, :reasoning_tokens, :cost_microusd, :price, :occurred_us, :now_us, :import_seq)
ON CONFLICT (response) DO UPDATE
SET model = COALESCE(excluded.model, usage.model), input_tokens = excluded.input_tokens,
    cached_input_tokens = excluded.cached_input_tokens, cache_write_tokens = excluded.cache_write_tokens,
    output_tokens = excluded.output_tokens, reasoning_tokens = excluded.reasoning_tokens,
    cost_microusd = excluded.cost_microusd, price = excluded.price, occurred_us = excluded.occurred_us

-- name: limited
SELECT 1 AS limited FROM budget WHERE removed_us IS NULL LIMIT 1

-- name: counted
SELECT u.response, u.session_id, s.scope, s.key AS session_key, COALESCE(s.agent, s.actor) AS agent,
       u.input_tokens + u.output_tokens AS tokens, u.cost_microusd,
       CASE WHEN u.input_tokens + u.output_tokens > 0 THEN 1 ELSE 0 END AS calls
FROM usage AS u JOIN session AS s ON s.id = u.session_id
WHERE u.response = :response

-- name: drop_usage
DELETE FROM usage WHERE response = :response

-- name: checkpoint
INSERT INTO checkpoint (id, session_id, node_id, from_position, to_position, cursor, summary, data, cache_keys,
                        versions, size_bytes, created_us)
VALUES (:id, :session_id, :node_id, 1, :to_position, NULL, :summary, :data, NULL, NULL, :size_bytes, :created_us)

-- The summary of a compaction is in the record after it.
-- name: word_checkpoint
UPDATE checkpoint SET summary = :summary, to_position = :to_position, size_bytes = size_bytes + :size_bytes
WHERE id = (SELECT id FROM checkpoint WHERE node_id = :node_id ORDER BY to_position DESC, id DESC LIMIT 1)
  AND summary IS NULL
RETURNING id

-- name: trim_checkpoints
DELETE FROM checkpoint
WHERE node_id = :node_id AND id NOT IN (
    SELECT id FROM checkpoint WHERE node_id = :node_id ORDER BY to_position DESC, created_us DESC, id DESC LIMIT :keep)

-- name: title_of_message
SELECT m.session_id AS session_id FROM message m WHERE m.native = :native

-- name: title
UPDATE node SET title = :title WHERE session_id = :session_id AND parent_id = ''

-- name: decision
INSERT INTO decision (id, scope, repository, session_id, node_id, what, why, identity, n, state, outcome, agent, actor,
                      tags, created_us, closed_us, git_dir, origin)
SELECT :id, :scope, :repository, s.id, :node_id, :what, :why, :identity, 1, 'done', :outcome, :agent, :actor, :tags,
       :created_us, :created_us, s.git_dir, s.origin
FROM session s
WHERE s.id = :session_id AND NOT EXISTS (
    SELECT 1 FROM decision d WHERE d.session_id = :session_id AND d.identity = :identity AND d.n = 1)

-- Keep an existing value, because a user may have changed it.
-- name: value
INSERT INTO state (scope, repository, namespace, key, value, version, actor, updated_us, git_dir, origin)
SELECT s.scope, '', s.id, :key, :value, 1, :actor, :now_us, s.git_dir, s.origin
FROM session s
WHERE s.id = :session_id
ON CONFLICT (scope, repository, namespace, key) DO NOTHING

-- name: raw
INSERT INTO import_batch (import_seq, generation, from_offset, upto, records, raw, created_us)
VALUES (:import_seq, :generation, :from_offset, :upto, :records, :raw, :now_us)
ON CONFLICT (import_seq, generation, from_offset) DO NOTHING
