-- The journal row that says that an effect was planned. It has no payload.

-- name: planned
SELECT e.tool, j.summary
FROM effect e JOIN event j ON j.subject = e.id AND j.type = 'effect.planned'
WHERE e.id = :id
ORDER BY j.seq
LIMIT 1

-- name: effect_of
SELECT effect_id FROM approval WHERE id = :id
