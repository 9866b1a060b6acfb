-- Forks: a pointer to the parent, and the cut.

-- name: fork
INSERT INTO session (id, scope, key, state, reason, agent, preview, cursor, parent_id, cut_node_id, cut_position,
                     cut_cursor, cut_seq, openings, actor, fence, created_us, updated_us, git_dir, origin)
VALUES (:id, :scope, :key, 'waiting', :reason, :agent, :preview, :cursor, :parent_id, :cut_node_id, :cut_position,
        :cursor, :cut_seq, 0, :actor, 0, :now_us, :now_us, :git_dir, :origin)
ON CONFLICT (scope, key) DO NOTHING
RETURNING {columns:session}

-- name: last_seq
SELECT COALESCE(MAX(seq), 0) AS seq FROM event

-- The journal's row of the first message after a cut. All earlier rows are before the cut.
-- name: seq_of_message
SELECT MIN(event.seq) AS seq
FROM message JOIN event ON event.subject = message.id
WHERE message.node_id = :node_id AND message.position = :position

-- name: cursor_at
SELECT data FROM event
WHERE session_id = :id AND type = 'session.moved' AND seq <= :cut_seq
ORDER BY seq DESC
LIMIT 1
