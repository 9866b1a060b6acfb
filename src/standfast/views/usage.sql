-- Sums per value of `:by`. Days are returned as quarters of an hour, which Python adds up in local time.
-- A row of cost alone, without tokens, is no response.
-- name: totals
SELECT COALESCE(CASE CAST(:by AS TEXT)
                WHEN 'session' THEN s.key
                WHEN 'agent' THEN COALESCE(s.agent, s.actor)
                WHEN 'model' THEN u.model
                WHEN 'repository' THEN COALESCE(s.origin, s.git_dir)
                ELSE CAST(u.occurred_us / 900000000 AS TEXT) END, '') AS name,
       SUM(CASE WHEN u.input_tokens + u.output_tokens > 0 THEN 1 ELSE 0 END) AS responses,
       CAST(SUM(u.input_tokens) AS BIGINT) AS input_tokens,
       CAST(SUM(u.cached_input_tokens) AS BIGINT) AS cached_input_tokens,
       CAST(SUM(u.cache_write_tokens) AS BIGINT) AS cache_write_tokens,
       CAST(SUM(u.output_tokens) AS BIGINT) AS output_tokens,
       CAST(SUM(u.reasoning_tokens) AS BIGINT) AS reasoning_tokens,
       CAST(SUM(CASE WHEN u.price IS NULL THEN u.cost_microusd END) AS BIGINT) AS cost_microusd,
       CAST(SUM(CASE WHEN u.price IS NOT NULL THEN u.cost_microusd END) AS BIGINT) AS list_price_microusd
FROM usage AS u
JOIN session AS s ON s.id = u.session_id
WHERE u.occurred_us >= :since_us AND (:everywhere = 1 OR s.scope = :scope) AND {here:s}
GROUP BY 1
