-- Addresses: what a session is called.

-- name: session_box
SELECT scope, key FROM session WHERE id = :id
