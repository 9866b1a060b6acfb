-- Values by key. Versions only grow, so a deleted or emptied value stays as a row with expires_us = 0.

-- name: get
SELECT {columns:state}
FROM state
WHERE scope = :scope AND repository = :repository AND namespace = :namespace AND key = :key

-- name: get_for_update
SELECT {columns:state}
FROM state
WHERE scope = :scope AND repository = :repository AND namespace = :namespace AND key = :key
{for_update}

-- In `set` and `swap`: a key with a schema is written only if :checked is that schema. With `create`, only a key without
-- a value is written.
-- name: set
INSERT INTO state (scope, repository, namespace, key, value, version, json_schema, verify, actor, updated_us,
                   expires_us, git_dir, origin)
VALUES (:scope, :repository, :namespace, :key, :value, 1, :json_schema, :verify, :actor, :now_us, :expires_us,
        :git_dir, :origin)
ON CONFLICT (scope, repository, namespace, key) DO UPDATE
SET value = excluded.value, version = state.version + 1, actor = excluded.actor, updated_us = excluded.updated_us,
    expires_us = excluded.expires_us, verified_us = NULL, verdict = NULL,
    json_schema = CASE WHEN :keep_schema = 1 THEN state.json_schema ELSE excluded.json_schema END,
    verify = CASE WHEN :keep_verify = 1 THEN state.verify ELSE excluded.verify END
WHERE (:create = 0 OR state.expires_us <= :now_us)
  AND (:keep_schema = 0 OR COALESCE(state.json_schema, '') = :checked)
RETURNING {columns:state}

-- name: swap
UPDATE state
SET value = :value, version = version + 1, actor = :actor, updated_us = :now_us, verified_us = NULL, verdict = NULL,
    expires_us = CASE WHEN :keep_end = 1 THEN expires_us ELSE :expires_us END,
    json_schema = CASE WHEN :keep_schema = 1 THEN json_schema ELSE :json_schema END,
    verify = CASE WHEN :keep_verify = 1 THEN verify ELSE :verify END
WHERE scope = :scope AND repository = :repository AND namespace = :namespace AND key = :key AND version = :version
  AND (expires_us IS NULL OR expires_us > :now_us)
  AND (:keep_schema = 0 OR COALESCE(json_schema, '') = :checked)
RETURNING {columns:state}

-- The row stays, so that a version is never used twice. Its schema and its command are deleted.
-- name: delete
UPDATE state
SET value = 'null', version = version + 1, json_schema = NULL, verify = NULL, verified_us = NULL, verdict = NULL,
    actor = :actor, updated_us = :now_us, expires_us = 0
WHERE scope = :scope AND repository = :repository AND namespace = :namespace AND key = :key AND (:version = 0 OR version = :version)
  AND (expires_us IS NULL OR expires_us > :now_us)
RETURNING {columns:state}

-- Empties expired values. Their expires_us becomes 0, so that this does not find them again.
-- name: expire
WITH ended AS MATERIALIZED
    (SELECT scope, repository, namespace, key FROM state WHERE expires_us > 0 AND expires_us <= :now_us
     ORDER BY expires_us LIMIT :limit {skip_locked})
UPDATE state
SET value = 'null', verified_us = NULL, verdict = NULL, expires_us = 0
WHERE expires_us > 0 AND expires_us <= :now_us
  AND (scope, repository, namespace, key) IN (SELECT scope, repository, namespace, key FROM ended)
RETURNING namespace, key

-- The version does not change, because the value does not.
-- name: verified
UPDATE state
SET verified_us = :now_us, verdict = :verdict
WHERE scope = :scope AND repository = :repository AND namespace = :namespace AND key = :key AND version = :version AND verify IS NOT NULL
  AND (expires_us IS NULL OR expires_us > :now_us)
RETURNING {columns:state}

-- name: page
SELECT {columns:state}
FROM state
WHERE scope = :scope AND repository = :repository AND namespace = :namespace AND key > :after AND (expires_us IS NULL OR expires_us > :now_us)
ORDER BY key
LIMIT :limit

-- name: page_to_verify
SELECT {columns:state}
FROM state
WHERE scope = :scope AND repository = :repository AND namespace = :namespace AND key > :after AND (expires_us IS NULL OR expires_us > :now_us)
  AND verify IS NOT NULL
ORDER BY key
LIMIT :limit

-- name: namespaces
SELECT namespace, count(*) AS n
FROM state
WHERE scope = :scope
  AND (repository = :repository OR (repository = '' AND namespace LIKE 'ses!_%' ESCAPE '!' AND {here}))
  AND namespace >= :after AND (namespace > :after OR :first = 1)
  AND (expires_us IS NULL OR expires_us > :now_us)
GROUP BY namespace
ORDER BY namespace
LIMIT :limit

-- Every key, including deleted ones: a fork needs their values at its cut.
-- name: keys_ever
SELECT key FROM state WHERE scope = :scope AND repository = :repository AND namespace = :namespace AND key > :after ORDER BY key LIMIT :limit

-- The last change of a value before a cut.
-- name: at_cut
SELECT type, data FROM event
WHERE subject = :subject AND seq <= :cut_seq AND type IN ('state.set', 'state.deleted')
ORDER BY seq DESC LIMIT 1

-- The session whose id is this namespace.
-- name: session
SELECT scope, git_dir, origin FROM session WHERE id = :id
