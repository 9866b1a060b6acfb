-- The records of one repository. Values that expire are left out, because time alone would change the export.

-- name: decisions
SELECT id, state, what, why, plan, outcome, COALESCE(agent, actor) AS agent, tags
FROM decision
WHERE scope = :scope AND repository = :repository

-- name: tasks
SELECT id, fingerprint, state, reason, title, body, kind, source, priority, labels, branch, assignee, parent_id,
       result, cool_down_us, snoozed_until_us, due_us
FROM task
WHERE scope = :scope AND repository = :repository

-- name: needs
SELECT n.task_id AS task_id, n.needs_id AS needs_id
FROM task_need n JOIN task t ON t.id = n.task_id
WHERE t.scope = :scope AND t.repository = :repository

-- name: values
SELECT namespace, key, value, json_schema
FROM state
WHERE scope = :scope AND repository = :repository AND expires_us IS NULL

-- name: gates
SELECT pattern, COALESCE(via, need) AS need, why
FROM gate
WHERE scope = :scope AND repository = :repository AND removed_us IS NULL

-- name: loops
SELECT name, kind, schedule, zone, command, catch_up, overlap, state
FROM loop
WHERE scope = :scope AND state <> 'removed' AND {here}

-- name: events
SELECT seq, time_us, actor, type, subject, state, summary
FROM event
WHERE scope = :scope AND {here} AND seq > :after
ORDER BY seq
LIMIT :limit
