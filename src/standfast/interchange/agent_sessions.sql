-- The sessions of agents' conversations.

-- name: find
SELECT session_id, node_id FROM import_thread WHERE agent = :agent AND native_id = :native_id

-- name: bind
INSERT INTO import_thread (agent, native_id, session_id, node_id, forked_from, facts, created_us)
VALUES (:agent, :native_id, :session_id, :node_id, :forked_from, :facts, :now_us)
ON CONFLICT (agent, native_id) DO NOTHING

-- name: by_key
SELECT id FROM session WHERE scope = :scope AND key = :key

-- A hook or a person may open it later.
-- name: add
INSERT INTO session (id, scope, key, state, reason, agent, cwd, openings, actor, fence, created_us, updated_us,
                     ended_us, git_dir, origin)
VALUES (:id, :scope, :key, 'completed', :reason, :agent, :cwd, 0, :actor, 0, :created_us, :created_us, :created_us,
        :git_dir, :origin)
ON CONFLICT (scope, key) DO NOTHING

-- name: place
SELECT scope, git_dir, origin FROM session WHERE id = :id
