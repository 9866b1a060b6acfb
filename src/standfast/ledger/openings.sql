-- The owner of a session, and the parent of a fork.

-- name: owner
SELECT id, key, state, holder, actor, lease_until_us, lease_boot, lease_mono_us, fence
FROM session
WHERE id = :session_id

-- name: parent
SELECT parent_id, cut_seq FROM session WHERE id = :id
