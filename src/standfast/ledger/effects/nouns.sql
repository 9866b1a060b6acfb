-- Finding one effect, and the session it belongs to.

-- name: by_suffix
SELECT id FROM effect WHERE id LIKE :pattern LIMIT 2

-- name: session
SELECT id, key FROM session WHERE id = :session OR (scope = :scope AND key = :session)
