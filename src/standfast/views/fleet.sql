-- The sessions that work, wait, or have crashed.

-- Of the whole store; `coverage` divides it by repository. The newest first: an old one that no process continues
-- must not hide what works now.
-- name: sessions
SELECT id, scope, key, state, agent, title, preview, cwd, command, holder, actor, lease_until_us, lease_boot,
       lease_mono_us, lease_for_us, created_us, updated_us, git_dir, origin
FROM session
WHERE state IN ('active', 'waiting')
ORDER BY updated_us DESC
LIMIT :limit

-- name: last_call
SELECT summary, status FROM tool_call WHERE session_id = :session_id ORDER BY occurred_us DESC LIMIT 1

-- name: last_reported
SELECT summary FROM event WHERE session_id = :session_id AND type = 'tool.called' ORDER BY seq DESC LIMIT 1

-- name: requested
SELECT id, requested_us FROM approval
WHERE session_id = :session_id AND state = 'requested' AND expires_us > :now_us
ORDER BY requested_us
LIMIT 1
