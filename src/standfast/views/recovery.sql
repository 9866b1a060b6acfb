-- What needs a person now. States that are derived (crashed, in doubt) are judged in Python, by
-- the one rule for leases; these statements bring the rows that may be in them. Each repeats the
-- condition of the partial index it is to use: SQLite does not conclude it by itself.

-- name: active_sessions
SELECT id, scope, key, state, reason, agent, holder, actor, lease_until_us, lease_boot, lease_mono_us, fence, updated_us
FROM session
WHERE state = 'active' AND state IN ('active', 'waiting') AND (:everywhere = 1 OR scope = :scope)
ORDER BY updated_us DESC
LIMIT :limit

-- name: waiting_sessions
SELECT id, scope, key, state, reason, agent, holder, actor, lease_until_us, lease_boot, lease_mono_us, fence, updated_us
FROM session
WHERE state = 'waiting' AND state IN ('active', 'waiting') AND (:everywhere = 1 OR scope = :scope)
ORDER BY updated_us DESC
LIMIT :limit

-- name: dispatched_effects
SELECT id, scope, session_id, tool, key, state, attempt, holder, actor, lease_until_us, lease_boot, lease_mono_us,
       gave_up_us, error, dispatched_us, updated_us
FROM effect
WHERE state = 'dispatched' AND state IN ('planned', 'dispatched') AND (:everywhere = 1 OR scope = :scope)
ORDER BY updated_us
LIMIT :limit

-- name: open_decisions
SELECT d.id, d.scope, d.session_id, d.what, d.plan, d.actor, d.created_us, s.key AS session_key, s.state AS session_state
FROM decision d LEFT JOIN session s ON s.id = d.session_id
WHERE d.state = 'open' AND d.state IN ('open', 'standing') AND (:everywhere = 1 OR d.scope = :scope)
ORDER BY d.created_us
LIMIT :limit

-- name: waiting_approvals
SELECT id, scope, session_id, effect_id, tool, requester, why, requested_us, expires_us
FROM approval
WHERE state = 'requested' AND expires_us > :now_us AND (:everywhere = 1 OR scope = :scope)
ORDER BY requested_us
LIMIT :limit

-- name: held_locks
SELECT scope, name, holder, actor, lease_until_us, lease_boot, lease_mono_us, fence, acquired_us, note
FROM lease
WHERE holder IS NOT NULL AND (:everywhere = 1 OR scope = :scope)
ORDER BY name
LIMIT :limit

-- name: dead_letters
SELECT id, scope, subject, kind, reason, attempts, created_us
FROM dead_letter
WHERE settled_us IS NULL AND (:everywhere = 1 OR scope || '' = :scope)
ORDER BY created_us
LIMIT :limit

-- Boxes with mail that nobody has taken: how much there is, since when, and when somebody last looked.
-- name: waiting_boxes
SELECT m.scope AS scope, m.box AS box, count(*) AS waiting, min(m.sent_us) AS oldest_us, b.bound AS bound,
       b.seen_us AS seen_us, b.refused AS refused
FROM mail m LEFT JOIN mail_box b ON b.scope = m.scope AND b.box = m.box
WHERE m.ended_us IS NULL AND (:everywhere = 1 OR m.scope = :scope)
GROUP BY m.scope, m.box, b.bound, b.seen_us, b.refused
HAVING count(m.holder) < count(*)
ORDER BY m.scope, m.box
LIMIT :limit

-- Loops whose next slot nobody has fired: how many slots are missing is worked out from the schedule.
-- name: late_loops
SELECT id FROM loop
WHERE next_slot_us IS NOT NULL AND next_slot_us < :late_us AND state = 'active' AND (:everywhere = 1 OR scope = :scope)
LIMIT :limit

-- name: stopped_loops
SELECT id, scope, name, reason, actor, updated_us
FROM loop
WHERE state = 'paused' AND (next_slot_us IS NULL OR (failures_max > 0 AND failures >= failures_max))
  AND (:everywhere = 1 OR scope = :scope)
ORDER BY updated_us
LIMIT :limit

-- Queued, ready for long, and nothing of its loop goes: nobody performs it.
-- name: waiting_runs
SELECT r.id, r.scope, l.name AS name, r.ready_us, r.slot_us
FROM run r JOIN loop l ON l.id = r.loop_id
WHERE r.state = 'queued' AND r.ready_us < :late_us AND (:everywhere = 1 OR r.scope = :scope)
  AND NOT EXISTS (SELECT 1 FROM run o WHERE o.loop_id = r.loop_id AND o.state = 'running')
ORDER BY r.ready_us
LIMIT :limit
