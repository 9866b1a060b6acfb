-- What needs a person now, of the whole store: `coverage` divides it by repository afterwards.
--
-- Rows come in pages by (at_us, id), so that every row is judged and only one page is in memory. SQL judges what it
-- can; whether a process is gone is judged in Python, by the one rule for leases. Each statement repeats the
-- condition of the partial index it is to use: SQLite does not conclude it by itself.

-- A session without a holder has not crashed. One that an actor holds has crashed only if its lease is over.
-- name: held_sessions
SELECT updated_us AS at_us, id, scope, git_dir, origin, key, agent, cwd, holder, actor, updated_us,
       CASE WHEN {lease_over:t} THEN 1 ELSE 0 END AS is_over
FROM session t
WHERE state = 'active' AND state IN ('active', 'waiting') AND (updated_us, id) > (:at_us, :id)
  AND holder IS NOT NULL AND (holder LIKE 'p:%' OR {lease_over:t})
ORDER BY updated_us, id
LIMIT :limit

-- name: waiting_sessions
SELECT updated_us AS at_us, id, scope, git_dir, origin, key, agent, holder, actor, updated_us
FROM session
WHERE state = 'waiting' AND state IN ('active', 'waiting') AND (updated_us, id) > (:at_us, :id)
ORDER BY updated_us, id
LIMIT :limit

-- Scope by scope, because the index on updated_us begins with it.
-- name: failed_sessions
WITH RECURSIVE scopes (scope) AS (
    SELECT min(scope) FROM session
    UNION ALL
    SELECT (SELECT min(scope) FROM session WHERE scope > scopes.scope) FROM scopes WHERE scopes.scope IS NOT NULL
)
SELECT s.updated_us AS at_us, s.id, s.scope, s.git_dir, s.origin, s.key, s.agent, s.holder, s.actor, s.updated_us,
       s.reason
FROM scopes JOIN session s ON s.scope = scopes.scope
WHERE s.updated_us >= :since_us AND s.state = 'failed' AND (s.updated_us, s.id) > (:at_us, :id)
ORDER BY s.updated_us, s.id
LIMIT :limit

-- name: key_of
SELECT (SELECT key FROM session WHERE id = :id) AS key

-- name: waiting_webhooks
SELECT received_us AS at_us, id, scope, git_dir, origin, source, event_id
FROM webhook_event
WHERE state = 'received' AND holder IS NULL AND received_us < :late_us AND (received_us, id) > (:at_us, :id)
ORDER BY received_us, id
LIMIT :limit

-- Why a waiting session waits: its open effects, those that were settled since, and the last request for each.
-- name: waits_for
SELECT s.reason, e.id AS effect_id, e.tool, e.state, e.holder, e.lease_until_us, e.lease_boot, e.lease_mono_us,
       e.gave_up_us, a.state AS approval_state, a.approver, a.rationale, a.requested_us, a.expires_us
FROM session s
     LEFT JOIN effect e ON e.session_id = s.id AND (e.state IN ('planned', 'dispatched') OR e.updated_us > s.updated_us)
     LEFT JOIN approval a ON a.id = (SELECT l.id FROM approval l WHERE l.effect_id = e.id
                                     ORDER BY l.requested_us DESC, l.id DESC LIMIT 1)
WHERE s.id = :id
ORDER BY e.planned_us DESC
LIMIT :limit

-- name: dispatched_effects
SELECT updated_us AS at_us, id, scope, git_dir, origin, session_id, tool, holder, actor, gave_up_us, error,
       dispatched_us, updated_us, result_shape,
       CASE WHEN {lease_over:t} THEN 1 ELSE 0 END AS is_over
FROM effect t
WHERE state = 'dispatched' AND state IN ('planned', 'dispatched') AND (updated_us, id) > (:at_us, :id)
  AND (gave_up_us IS NOT NULL OR holder IS NULL OR holder LIKE 'p:%' OR {lease_over:t})
ORDER BY updated_us, id
LIMIT :limit

-- name: open_decisions
SELECT created_us AS at_us, id, scope, repository, git_dir, origin, session_id, what, actor
FROM decision
WHERE state = 'open' AND state IN ('open', 'standing') AND (created_us, id) > (:at_us, :id)
ORDER BY created_us, id
LIMIT :limit

-- name: waiting_approvals
SELECT requested_us AS at_us, id, scope, git_dir, origin, session_id, tool, requester, why
FROM approval
WHERE state = 'requested' AND expires_us > :now_us AND (requested_us, id) > (:at_us, :id)
ORDER BY requested_us, id
LIMIT :limit

-- name: held_locks
SELECT acquired_us AS at_us, scope || ' ' || name AS id, scope, name, holder, actor,
       CASE WHEN {lease_over:t} THEN 1 ELSE 0 END AS is_over
FROM lease t
WHERE holder IS NOT NULL AND (acquired_us, scope || ' ' || name) > (:at_us, :id)
  AND (holder LIKE 'p:%' OR {lease_over:t})
ORDER BY acquired_us, scope || ' ' || name
LIMIT :limit

-- name: dead_letters
SELECT created_us AS at_us, id, scope, subject, kind, reason, attempts
FROM dead_letter
WHERE settled_us IS NULL AND (created_us, id) > (:at_us, :id)
ORDER BY created_us, id
LIMIT :limit

-- Boxes with unread mail: how much there is, since when, and when the box was last read.
-- name: waiting_boxes
SELECT min(m.sent_us) AS at_us, m.scope || ' ' || m.box AS id, m.scope AS scope, m.box AS box, count(*) AS waiting,
       b.bound AS bound, b.seen_us AS seen_us
FROM mail m LEFT JOIN mail_box b ON b.scope = m.scope AND b.box = m.box
WHERE m.ended_us IS NULL
GROUP BY m.scope, m.box, b.bound, b.seen_us
HAVING count(m.holder) < count(*) AND (min(m.sent_us), m.scope || ' ' || m.box) > (:at_us, :id)
ORDER BY min(m.sent_us), m.scope || ' ' || m.box
LIMIT :limit

-- Loops whose next slot was not fired: how many slots are missing is worked out from the schedule.
-- name: late_loops
SELECT count(*) AS late
FROM loop
WHERE next_slot_us IS NOT NULL AND next_slot_us < :late_us AND state = 'active'

-- name: stopped_loops
SELECT updated_us AS at_us, id, scope, git_dir, origin, name, reason, actor
FROM loop
WHERE state = 'paused' AND (next_slot_us IS NULL OR (failures_max > 0 AND failures >= failures_max))
  AND (updated_us, id) > (:at_us, :id)
ORDER BY updated_us, id
LIMIT :limit

-- Queued, ready for long, and no run of its loop is running: no worker runs it.
-- name: waiting_runs
SELECT r.ready_us AS at_us, r.id, r.scope, r.git_dir AS git_dir, r.origin AS origin, l.name AS name
FROM run r JOIN loop l ON l.id = r.loop_id
WHERE r.state = 'queued' AND r.ready_us < :late_us AND (r.ready_us, r.id) > (:at_us, :id)
  AND NOT EXISTS (SELECT 1 FROM run o WHERE o.loop_id = r.loop_id AND o.state = 'running')
ORDER BY r.ready_us, r.id
LIMIT :limit

-- The last observation of a hook about each effect in doubt.
-- name: observed
SELECT summary FROM event WHERE subject = :subject AND type = 'call.observed' ORDER BY seq DESC LIMIT 1

-- name: context_of
SELECT context FROM effect WHERE id = :id

-- name: directory
SELECT cwd FROM session WHERE id = :id
