-- Addresses: the scope and the key of a session.

-- name: session_box
SELECT scope, key FROM session WHERE id = :id
