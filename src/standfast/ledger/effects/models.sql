-- Finding one effect, and the session and the task it belongs to.

-- name: by_suffix
SELECT id FROM effect WHERE id LIKE :pattern LIMIT 2

-- name: session
SELECT id, key, scope, actor, git_dir, origin FROM session WHERE id = :session OR (scope = :scope AND key = :session)

-- name: task_by_id
SELECT id FROM task WHERE id = :id

-- name: task_by_fingerprint
SELECT id FROM task
WHERE scope = :scope AND repository = :repository AND fingerprint = :fingerprint
ORDER BY episode DESC LIMIT 1

-- name: task_by_suffix
SELECT id FROM task WHERE id LIKE :pattern ORDER BY id DESC LIMIT 2
