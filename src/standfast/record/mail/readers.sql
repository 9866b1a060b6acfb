-- Readers of a box.

-- name: sessions
SELECT holder, lease_until_us, lease_boot, lease_mono_us, lease_for_us
FROM session
WHERE scope = :scope AND state = 'active' AND (agent = :role OR key = :box OR 'session:' || key = :box)
ORDER BY updated_us DESC
LIMIT :limit

-- name: agents
SELECT holder, last_seen_us
FROM agent
WHERE scope = :scope AND (name = :name OR kind = :kind)
ORDER BY last_seen_us DESC
LIMIT :limit

-- name: held
SELECT holder, lease_until_us, lease_boot, lease_mono_us, lease_for_us
FROM session
WHERE holder = :holder AND scope = :scope AND state = 'active'
LIMIT :limit
