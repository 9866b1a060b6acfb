-- Sessions by id or key, and the names that a mistyped name is compared with. Only the newest names are compared, so
-- that the error is fast in a large store.

-- name: session
SELECT id FROM session WHERE id = :session OR (scope = :scope AND key = :session)

-- name: session_names
SELECT key AS name, key AS word
FROM session
WHERE scope = :scope AND {here}
ORDER BY updated_us DESC
LIMIT :limit

-- name: loop_names
SELECT name, name AS word
FROM loop
WHERE scope = :scope AND state <> 'removed' AND {here}
ORDER BY name
LIMIT :limit

-- A title is what people remember of a task; its id is what a command takes.
-- name: task_names
SELECT CASE WHEN fingerprint LIKE 'f1:%' THEN title ELSE fingerprint END AS name, id AS word
FROM task
WHERE scope = :scope AND {here}
ORDER BY id DESC
LIMIT :limit
