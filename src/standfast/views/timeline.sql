-- The timeline: the journal between two moments. It reads no payload column.

-- name: between
SELECT e.seq, e.time_us, e.occurred_us, e.scope, e.actor, e.holder, e.source, e.type, e.subject, e.session_id,
       e.state, e.stream, e.summary, s.key AS session_key, s.agent AS agent
FROM event e LEFT JOIN session s ON s.id = e.session_id
WHERE e.occurred_us >= :from_us AND e.occurred_us < :until_us
  AND (:everywhere = 1 OR e.scope = :scope)
  AND (CAST(:session_id AS text) IS NULL OR e.session_id = :session_id)
  AND (CAST(:agent AS text) IS NULL OR e.actor = :agent OR s.agent = :agent)
  AND (CAST(:subject AS text) IS NULL OR e.subject = :subject)
  AND (CAST(:type AS text) IS NULL OR e.type = :type OR e.type LIKE :type_prefix)
ORDER BY e.occurred_us, e.seq
LIMIT :limit

-- name: before
SELECT max(occurred_us) AS us FROM event WHERE occurred_us < :us

-- name: after
SELECT min(occurred_us) AS us FROM event WHERE occurred_us >= :us

-- name: session_by_key
SELECT id FROM session WHERE id = :text OR (scope = :scope AND key = :text) LIMIT 1
