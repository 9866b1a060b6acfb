-- Values by name, with versions that only grow: what is deleted stays as an expired row.

-- name: get
SELECT scope, namespace, key, value, version, actor, updated_us, expires_us
FROM state
WHERE scope = :scope AND namespace = :namespace AND key = :key

-- name: set
INSERT INTO state (scope, namespace, key, value, version, actor, updated_us, expires_us)
VALUES (:scope, :namespace, :key, :value, 1, :actor, :now_us, :expires_us)
ON CONFLICT (scope, namespace, key) DO UPDATE
SET value = excluded.value, version = state.version + 1, actor = excluded.actor, updated_us = excluded.updated_us,
    expires_us = excluded.expires_us
RETURNING scope, namespace, key, value, version, actor, updated_us, expires_us

-- Only if the key is not there yet.
-- name: create
INSERT INTO state (scope, namespace, key, value, version, actor, updated_us, expires_us)
VALUES (:scope, :namespace, :key, :value, 1, :actor, :now_us, :expires_us)
ON CONFLICT (scope, namespace, key) DO UPDATE
SET value = excluded.value, version = state.version + 1, actor = excluded.actor, updated_us = excluded.updated_us,
    expires_us = excluded.expires_us
WHERE state.expires_us <= :now_us
RETURNING scope, namespace, key, value, version, actor, updated_us, expires_us

-- name: swap
UPDATE state
SET value = :value, version = version + 1, actor = :actor, updated_us = :now_us, expires_us = :expires_us
WHERE scope = :scope AND namespace = :namespace AND key = :key AND version = :version
  AND (expires_us IS NULL OR expires_us > :now_us)
RETURNING scope, namespace, key, value, version, actor, updated_us, expires_us

-- The row stays, expired, so that a version is never given twice.
-- name: delete
UPDATE state
SET value = 'null', version = version + 1, actor = :actor, updated_us = :now_us, expires_us = :now_us
WHERE scope = :scope AND namespace = :namespace AND key = :key AND (:version = 0 OR version = :version)
  AND (expires_us IS NULL OR expires_us > :now_us)
RETURNING scope, namespace, key, value, version, actor, updated_us, expires_us

-- name: page
SELECT scope, namespace, key, value, version, actor, updated_us, expires_us
FROM state
WHERE scope = :scope AND namespace = :namespace AND key > :after AND (expires_us IS NULL OR expires_us > :now_us)
ORDER BY key
LIMIT :limit

-- Every key there ever was, deleted ones too: a fork asks what they were at its cut.
-- name: keys_ever
SELECT key FROM state WHERE scope = :scope AND namespace = :namespace AND key > :after ORDER BY key LIMIT :limit

-- What the journal says a value was at a cut.
-- name: at_cut
SELECT type, data FROM event WHERE subject = :subject AND seq <= :cut_seq ORDER BY seq DESC LIMIT 1
