-- The timeline: the journal between two moments. It reads no payload column.

-- `session.agent` is the name that the present actor of the session works under. Rows of another actor do not get it:
-- that actor had the session before, or wrote to it from outside. claude-code:SESSION is an actor of claude-code.
-- name: between
SELECT e.seq, e.time_us, e.occurred_us, e.scope, e.actor, e.holder, e.source, e.type, e.subject, e.session_id,
       e.state, e.stream, e.summary, e.git_dir, e.origin, s.key AS session_key,
       CASE WHEN e.actor = s.actor OR substr(e.actor, 1, length(s.agent) + 1) = s.agent || ':' THEN s.agent END AS agent
FROM event e LEFT JOIN session s ON s.id = e.session_id
WHERE e.occurred_us >= :from_us AND e.occurred_us < :until_us
  AND (:everywhere = 1 OR e.scope = :scope) AND {here:e}
  AND (CAST(:session_id AS text) IS NULL OR e.session_id = :session_id)
  AND (CAST(:agent AS text) IS NULL OR e.actor = :agent OR (s.agent = :agent
       AND (e.actor = s.actor OR substr(e.actor, 1, length(s.agent) + 1) = s.agent || ':')))
  AND (CAST(:subject AS text) IS NULL OR e.subject = :subject OR e.subject LIKE CAST(:ending AS text) ESCAPE '!')
  AND (CAST(:type AS text) IS NULL OR e.type = :type OR e.type LIKE :type_prefix)
  AND (:slots = 0 OR e.type NOT IN ('run.missed', 'run.skipped'))
  AND (:problems = 0 OR e.type IN ('effect.in_doubt', 'effect.failed', 'effect.dispatched', 'effect.gave_up', 'session.failed',
       'session.opened', 'session.resumed', 'session.taken_over', 'run.failed', 'run.timed_out', 'run.abandoned',
       'run.missed', 'run.skipped', 'run.retried', 'loop.paused', 'mail.dead', 'mail.lost', 'webhook.failed',
       'webhook.dead', 'webhook.refused', 'approval.denied', 'approval.expired', 'tool.denied', 'task.taken_over',
       'lease.taken_over', 'decision.failed'))
ORDER BY e.occurred_us, e.seq
LIMIT :limit

-- Messages of imported transcripts. Only imported messages have a summary.
-- name: messages_between
SELECT 0 AS seq, m.created_us AS time_us, m.occurred_us AS occurred_us, s.scope AS scope, m.actor AS actor,
       'said' AS source, 'message.said' AS type, m.id AS subject, m.session_id AS session_id,
       CASE WHEN m.retracted_us IS NULL THEN NULL ELSE 'retracted' END AS state, m.summary AS summary,
       s.git_dir, s.origin, s.key AS session_key, s.agent AS agent
FROM message m JOIN session s ON s.id = m.session_id
WHERE m.summary IS NOT NULL AND m.occurred_us >= :from_us AND m.occurred_us < :until_us
  AND (:everywhere = 1 OR s.scope = :scope) AND {here:s}
  AND (CAST(:session_id AS text) IS NULL OR m.session_id = :session_id)
  AND (CAST(:agent AS text) IS NULL OR m.actor = :agent OR s.agent = :agent)
  AND (CAST(:subject AS text) IS NULL OR m.id = :subject OR m.id LIKE CAST(:ending AS text) ESCAPE '!')
ORDER BY m.occurred_us, m.seq
LIMIT :limit

-- Tool calls of imported transcripts. The calls that a hook saw are in the journal.
-- name: calls_between
SELECT 0 AS seq, c.created_us AS time_us, c.occurred_us AS occurred_us, s.scope AS scope, s.agent AS actor,
       'said' AS source, 'tool.called' AS type, c.id AS subject, c.session_id AS session_id, c.status AS state,
       c.summary AS summary, s.git_dir, s.origin, s.key AS session_key, s.agent AS agent
FROM tool_call c JOIN session s ON s.id = c.session_id
WHERE c.source = 'transcript' AND c.occurred_us >= :from_us AND c.occurred_us < :until_us
  AND (:everywhere = 1 OR s.scope = :scope) AND {here:s}
  AND (CAST(:session_id AS text) IS NULL OR c.session_id = :session_id)
  AND (CAST(:agent AS text) IS NULL OR s.agent = :agent)
  AND (CAST(:subject AS text) IS NULL OR c.id = :subject OR c.id LIKE CAST(:ending AS text) ESCAPE '!')
ORDER BY c.occurred_us, c.seq
LIMIT :limit

-- Slots that were not run, each at its own time. The journal has one row for a range of them, at its beginning.
-- Loop by loop: there are few of them, and of each the window is found by an index (so CROSS JOIN, for SQLite).
-- name: slots_between
SELECT r.seq AS seq, r.created_us AS time_us, r.slot_us AS occurred_us, r.scope AS scope, 'standfast' AS actor,
       'seen' AS source, r.state AS state, r.loop_id AS subject, NULL AS session_id, NULL AS session_key, NULL AS agent,
       l.git_dir, l.origin, l.name AS name, l.zone AS zone, r.reason AS reason, r.slots AS slots, r.until_slot_us AS until_slot_us
FROM loop l CROSS JOIN run r
WHERE r.loop_id = l.id AND r.slot_us >= :from_us AND r.slot_us < :until_us AND r.state IN ('missed', 'skipped')
  AND (:everywhere = 1 OR l.scope = :scope) AND {here:l} AND (CAST(:subject AS text) IS NULL OR l.id = :subject OR l.id LIKE CAST(:ending AS text) ESCAPE '!')
ORDER BY r.slot_us
LIMIT :limit

-- Ranges that began before and reach into it.
-- name: ranges_into
SELECT r.seq AS seq, r.created_us AS time_us, :from_us AS occurred_us, r.scope AS scope, 'standfast' AS actor,
       'seen' AS source, r.state AS state, r.loop_id AS subject, NULL AS session_id, NULL AS session_key, NULL AS agent,
       l.git_dir, l.origin, l.name AS name, l.zone AS zone, r.reason AS reason, r.slots AS slots, r.until_slot_us AS until_slot_us
FROM run r JOIN loop l ON l.id = r.loop_id
WHERE r.until_slot_us IS NOT NULL AND r.until_slot_us >= :from_us AND r.slot_us < :from_us
  AND (:everywhere = 1 OR r.scope = :scope) AND {here:r} AND (CAST(:subject AS text) IS NULL OR r.loop_id = :subject OR r.loop_id LIKE CAST(:ending AS text) ESCAPE '!')
ORDER BY r.until_slot_us
LIMIT :limit

-- name: before
SELECT (SELECT max(occurred_us) FROM event WHERE occurred_us < :us) AS event_us,
       (SELECT max(occurred_us) FROM message WHERE summary IS NOT NULL AND occurred_us < :us) AS message_us,
       (SELECT max(occurred_us) FROM tool_call WHERE occurred_us < :us) AS call_us

-- name: after
SELECT (SELECT min(occurred_us) FROM event WHERE occurred_us >= :us) AS event_us,
       (SELECT min(occurred_us) FROM message WHERE summary IS NOT NULL AND occurred_us >= :us) AS message_us,
       (SELECT min(occurred_us) FROM tool_call WHERE occurred_us >= :us) AS call_us

-- name: session_by_key
SELECT id, scope
FROM session
WHERE id = :text OR id LIKE CAST(:ending AS text) ESCAPE '!' OR (key = :text AND (:everywhere = 1 OR scope = :scope))
ORDER BY updated_us DESC
LIMIT 20
