-- The open gap, and what else `meta` says of the store.

-- name: value
SELECT value FROM meta WHERE key = :key
