-- Calls of an LLM: a row of `usage` with its prompt and its response, which are messages.

-- name: add
INSERT INTO usage (id, session_id, node_id, response, model, input_tokens, cached_input_tokens, cache_write_tokens,
                   output_tokens, reasoning_tokens, cost_microusd, occurred_us, created_us, context_tokens, prompt_id,
                   response_id, hold_id, price)
VALUES (:id, :session_id, :node_id, :response, :model, :input_tokens, :cached_input_tokens, :cache_write_tokens,
        :output_tokens, :reasoning_tokens, :cost_microusd, :now_us, :now_us, :context_tokens, :prompt_id,
        :response_id, :hold_id, :price)

-- name: by_response
SELECT {columns:usage}
FROM usage
WHERE response = :response

-- name: page
SELECT {columns:usage}
FROM usage
WHERE session_id = :session_id AND prompt_id IS NOT NULL AND id > :after
ORDER BY id
LIMIT :limit

-- name: response_of
SELECT m.format, m.content
FROM usage AS u JOIN message AS m ON m.id = u.response_id
WHERE u.response = :response
