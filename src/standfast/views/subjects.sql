-- The subjects of effects and approvals, and the rows that an id, the end of an id or a key names.

-- name: effect
SELECT e.tool, e.intent, e.context, NULL AS question, e.scope, e.git_dir, e.origin, s.key AS session_key, s.agent
FROM effect e LEFT JOIN session s ON s.id = e.session_id
WHERE e.id = :id

-- name: approval
SELECT a.tool, NULL AS intent, e.context, a.question, a.scope, a.git_dir, a.origin, s.key AS session_key, s.agent
FROM approval a LEFT JOIN effect e ON e.id = a.effect_id LEFT JOIN session s ON s.id = a.session_id
WHERE a.id = :id

-- name: by_key
SELECT id FROM session WHERE key = :key
UNION ALL SELECT id FROM effect WHERE key = :key
UNION ALL SELECT id FROM loop WHERE name = :key
UNION ALL SELECT id FROM task WHERE fingerprint = :key
LIMIT 20

-- The kinds that have a screen. The end of an id has no index: this reads the ids of these tables.
-- name: by_suffix
SELECT id FROM session WHERE id LIKE :pattern
UNION ALL SELECT id FROM effect WHERE id LIKE :pattern
UNION ALL SELECT id FROM approval WHERE id LIKE :pattern
UNION ALL SELECT id FROM decision WHERE id LIKE :pattern
UNION ALL SELECT id FROM task WHERE id LIKE :pattern
UNION ALL SELECT id FROM mail WHERE id LIKE :pattern
UNION ALL SELECT id FROM loop WHERE id LIKE :pattern
UNION ALL SELECT id FROM run WHERE id LIKE :pattern
UNION ALL SELECT id FROM artifact WHERE id LIKE :pattern
UNION ALL SELECT id FROM webhook_event WHERE id LIKE :pattern
UNION ALL SELECT id FROM gate WHERE id LIKE :pattern
LIMIT 20
