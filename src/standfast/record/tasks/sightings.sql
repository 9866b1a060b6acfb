-- Sightings: one statement opens a task or counts it, from any number of processes.

-- A report of a problem that is not closed is counted. A problem that is closed or new gets a new episode. If it is closed
-- and cooling down, no row is returned, and `count_cooling` counts the report. A report does not change the priority,
-- labels or assignee, because a person may have set them.
-- name: add
INSERT INTO task (id, scope, repository, fingerprint, episode, state, title, body, kind, source, priority, labels,
                  branch, assignee, parent_id, session_id, occurrences, first_seen_us, last_seen_us, last_sweep,
                  cool_down_us, due_us, fence, created_us, updated_us, git_dir, origin)
SELECT :id, :scope, :repository, :fingerprint,
       COALESCE((SELECT MAX(p.episode) FROM task p
                 WHERE p.scope = :scope AND p.repository = :repository AND p.fingerprint = :fingerprint), 0) + 1,
       'open', :title, :body, :kind, :source, :priority, :labels, :branch, :assignee,
       COALESCE(:parent_id, (SELECT p.parent_id FROM task p
                             WHERE p.scope = :scope AND p.repository = :repository AND p.fingerprint = :fingerprint
                             ORDER BY p.episode DESC LIMIT 1)),
       :session_id, 1, :now_us, :now_us,
       COALESCE((SELECT s.n FROM sweep s
                 WHERE s.scope = :scope AND s.repository = :repository AND s.source = :source), 0),
       :cool_down_us, :due_us, 0, :now_us, :now_us, :git_dir, :origin
WHERE NOT EXISTS (SELECT 1 FROM task c
                  WHERE c.scope = :scope AND c.repository = :repository AND c.fingerprint = :fingerprint
                    AND c.state = 'closed'
                    AND c.closed_us > :now_us - c.cool_down_us)
   OR EXISTS (SELECT 1 FROM task o
              WHERE o.scope = :scope AND o.repository = :repository AND o.fingerprint = :fingerprint
                AND o.state <> 'closed')
ON CONFLICT (scope, repository, fingerprint) WHERE state <> 'closed'
DO UPDATE SET occurrences = task.occurrences + 1, last_seen_us = excluded.last_seen_us, title = excluded.title,
              body = COALESCE(excluded.body, task.body),
              cool_down_us = COALESCE(excluded.cool_down_us, task.cool_down_us),
              last_sweep = CASE WHEN task.source = excluded.source THEN excluded.last_sweep ELSE task.last_sweep END,
              updated_us = excluded.updated_us
RETURNING {columns:task}

-- name: count_cooling
UPDATE task
SET occurrences = occurrences + 1, last_seen_us = :now_us, updated_us = :now_us
WHERE scope = :scope AND repository = :repository AND fingerprint = :fingerprint
  AND episode = (SELECT MAX(p.episode) FROM task p
                 WHERE p.scope = :scope AND p.repository = :repository AND p.fingerprint = :fingerprint)
RETURNING {columns:task}

-- name: next_sweep
INSERT INTO sweep (scope, repository, source, n, updated_us, git_dir, origin)
VALUES (:scope, :repository, :source, 1, :now_us, :git_dir, :origin)
ON CONFLICT (scope, repository, source) DO UPDATE SET n = sweep.n + 1, updated_us = excluded.updated_us
RETURNING n

-- Tasks that the last sweeps did not report. Accepted tasks and tasks with a live lease are left out. The caller checks
-- whether a process that holds a task is alive.
-- name: absent
SELECT t.id AS id, t.fingerprint AS fingerprint
FROM task t
WHERE t.scope = :scope AND t.repository = :repository AND t.source = :source AND t.last_sweep <= :seen_before
  AND t.state <> 'closed' AND t.state <> 'accepted' AND (t.holder IS NULL OR t.holder LIKE 'p:%' OR {lease_over:t})
ORDER BY t.last_sweep
LIMIT :limit

-- name: still_absent
SELECT {columns:task}
FROM task
WHERE id = :id AND last_sweep <= :seen_before AND state IN ('open', 'snoozed')
{for_update}
