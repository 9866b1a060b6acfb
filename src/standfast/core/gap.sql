-- Values of `meta`, such as the open gap.

-- name: value
SELECT value FROM meta WHERE key = :key
