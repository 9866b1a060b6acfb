-- The tasks that a task waits for: the tasks it needs, and the tasks below it.

-- name: need
INSERT INTO task_need (task_id, needs_id) VALUES (:task_id, :needs_id)
ON CONFLICT (task_id, needs_id) DO NOTHING
RETURNING task_id

-- name: unneed
DELETE FROM task_need WHERE task_id = :task_id AND needs_id = :needs_id
RETURNING task_id

-- name: count_needs
SELECT COUNT(*) AS count FROM task_need WHERE task_id = :id

-- Every task that waits for a task, directly or not: tasks that need it, and the goal above it. `step` has a row for each
-- of the two relations, because in PostgreSQL a recursive query may refer to itself only once.
-- name: waits_for
WITH RECURSIVE step (kind) AS (VALUES (0), (1)),
waiting (id) AS (
    SELECT CAST(:id AS TEXT)
    UNION
    SELECT CASE s.kind WHEN 0 THEN n.task_id ELSE t.parent_id END
    FROM waiting w CROSS JOIN step s
    LEFT JOIN task_need n ON s.kind = 0 AND n.needs_id = w.id
    LEFT JOIN task t ON s.kind = 1 AND t.id = w.id
)
SELECT id FROM waiting WHERE id = :other LIMIT 1

-- name: needs
SELECT d.id AS id, d.title AS title, d.state AS state, d.episode AS episode
FROM task_need n JOIN task d ON d.id = n.needs_id
WHERE n.task_id = :id
ORDER BY d.id
LIMIT :limit

-- name: needed_by
SELECT d.id AS id, d.title AS title, d.state AS state, d.episode AS episode
FROM task_need n JOIN task d ON d.id = n.task_id
WHERE n.needs_id = :id
ORDER BY d.id
LIMIT :limit

-- name: children
SELECT c.id AS id, c.title AS title, c.state AS state, c.episode AS episode
FROM task c
WHERE c.parent_id = :id
  AND c.episode = (SELECT MAX(n.episode) FROM task n
                   WHERE n.scope = c.scope AND n.repository = c.repository AND n.fingerprint = c.fingerprint)
ORDER BY c.priority, c.id
LIMIT :limit

-- Counts the leaves below a goal, each by its newest episode.
-- name: progress
WITH RECURSIVE below (id, state, holder, scope, repository, fingerprint, episode, depth) AS (
    SELECT id, state, holder, scope, repository, fingerprint, episode, 1 FROM task WHERE parent_id = :id
    UNION ALL
    SELECT t.id, t.state, t.holder, t.scope, t.repository, t.fingerprint, t.episode, b.depth + 1
    FROM below b JOIN task t ON t.parent_id = b.id
    WHERE b.depth < :depth_max
)
SELECT COUNT(*) AS total,
       COALESCE(SUM(CASE WHEN b.state = 'closed' THEN 1 ELSE 0 END), 0) AS closed,
       COALESCE(SUM(CASE WHEN b.state = 'accepted' THEN 1 ELSE 0 END), 0) AS accepted,
       COALESCE(SUM(CASE WHEN b.holder IS NOT NULL THEN 1 ELSE 0 END), 0) AS held
FROM below b
WHERE NOT EXISTS (SELECT 1 FROM task c WHERE c.parent_id = b.id)
  AND b.episode = (SELECT MAX(n.episode) FROM task n
                   WHERE n.scope = b.scope AND n.repository = b.repository AND n.fingerprint = b.fingerprint)
