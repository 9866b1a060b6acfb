-- What a graph remembers beyond its threads. What is over by its time is read as gone.

-- name: get
SELECT path, key, value, created_us, updated_us, ttl_us FROM item
WHERE scope = :scope AND path = :path AND key = :key AND (expires_us IS NULL OR expires_us > :now_us)

-- Written over something whose time is over, it is new.
-- name: put
INSERT INTO item (scope, path, key, value, created_us, updated_us, ttl_us, expires_us)
VALUES (:scope, :path, :key, :value, :now_us, :now_us, :ttl_us, :expires_us)
ON CONFLICT (scope, path, key) DO UPDATE
SET value = :value, updated_us = :now_us, ttl_us = :ttl_us, expires_us = :expires_us,
    created_us = CASE WHEN item.expires_us <= :now_us THEN :now_us ELSE item.created_us END

-- name: delete
DELETE FROM item WHERE scope = :scope AND path = :path AND key = :key

-- name: refresh
UPDATE item SET expires_us = :now_us + ttl_us
WHERE scope = :scope AND path = :path AND key = :key AND ttl_us IS NOT NULL AND expires_us > :now_us

-- name: paths
SELECT DISTINCT path FROM item WHERE scope = :scope AND (expires_us IS NULL OR expires_us > :now_us) ORDER BY path

-- name: page
SELECT path, key, value, created_us, updated_us, ttl_us FROM item
WHERE scope = :scope AND path = :path AND key > :after AND (expires_us IS NULL OR expires_us > :now_us)
ORDER BY key
LIMIT :limit

-- name: sweep
DELETE FROM item
WHERE seq IN (SELECT seq FROM item WHERE scope = :scope AND expires_us <= :now_us ORDER BY expires_us LIMIT :limit)
RETURNING path, key
