-- The session and the task of an effect.

-- name: session
SELECT id, key, scope, actor, git_dir, origin FROM session WHERE id = :session OR (scope = :scope AND key = :session)

-- name: task_by_fingerprint
SELECT id FROM task
WHERE scope = :scope AND repository = :repository AND fingerprint = :fingerprint
ORDER BY episode DESC LIMIT 1
