-- Decisions are written before the action and closed after it.

-- An opening counts `n`; for a command it is one more than the last. If any unique index refuses the row, the decision is
-- there already.
-- name: add
INSERT INTO decision (id, scope, repository, session_id, node_id, position, what, why, plan, identity, n, state,
                      agent, actor, tags, created_us, git_dir, origin)
VALUES (:id, :scope, :repository, :session_id, :node_id, :position, :what, :why, :plan, :identity, :n, :state,
        :agent, :actor, :tags, :now_us, :git_dir, :origin)
ON CONFLICT DO NOTHING
RETURNING {columns:decision}

-- name: reached
SELECT {columns:decision}
FROM decision
WHERE session_id = :session_id AND identity = :identity AND n = :n

-- name: last_in_session
SELECT {columns:decision}
FROM decision
WHERE session_id = :session_id AND identity = :identity
ORDER BY n DESC
LIMIT 1

-- name: open_outside
SELECT {columns:decision}
FROM decision
WHERE state = 'open' AND scope = :scope AND repository = :repository AND session_id IS NULL AND identity = :identity
  AND COALESCE(agent, actor) = :by
ORDER BY created_us
LIMIT 1

-- name: standing
SELECT {columns:decision}
FROM decision
WHERE state = 'standing' AND scope = :scope AND repository = :repository AND identity = :identity

-- name: node
SELECT parent_id, next_position FROM node WHERE id = :id

-- name: session
SELECT s.id AS id, s.key AS key, s.actor AS actor, s.scope AS scope, s.git_dir AS git_dir, s.origin AS origin,
       s.agent AS agent, n.id AS node_id, n.next_position AS position
FROM session s LEFT JOIN node n ON n.session_id = s.id AND n.parent_id = '' AND n.name = ''
WHERE s.id = :session OR (s.scope = :scope AND s.key = :session)

-- name: end
UPDATE decision SET state = :state, outcome = :outcome, closed_us = :now_us
WHERE id = :id AND state IN ('open', :also)
RETURNING {columns:decision}

-- name: reopen
UPDATE decision SET state = :state, outcome = NULL, closed_us = NULL
WHERE id = :id AND state = :was
RETURNING {columns:decision}

-- name: made_standing
SELECT seq FROM event WHERE subject = :id AND type = 'decision.made' AND state = 'standing' LIMIT 1

-- name: standing_like
SELECT d.id AS id
FROM decision d JOIN decision own
  ON own.id = :id AND d.scope = own.scope AND d.repository = own.repository AND d.identity = own.identity
WHERE d.state = 'standing'

-- name: by_id
SELECT {columns:decision:d}, s.key AS session_key, s.state AS session_state
FROM decision d LEFT JOIN session s ON s.id = d.session_id
WHERE d.id = :id

-- For example all decisions of an agent in the last 7 days about a topic: standing orders first, then the newest, each
-- with its session.
-- name: page
SELECT {columns:decision:d}, s.key AS session_key, s.state AS session_state
FROM decision d LEFT JOIN session s ON s.id = d.session_id
WHERE (:everywhere = 1 OR :session <> '' OR (d.scope = :scope AND d.repository = :repository))
  AND d.created_us >= :since_us AND d.created_us < :until_us
  AND (:session = '' OR d.session_id = :session OR (s.key = :session AND s.scope = :scope))
  AND (:agent = '' OR d.agent = :agent OR d.actor = :agent)
  AND (:state = '' OR d.state = :state)
  AND (:tag = '' OR d.tags LIKE :tag ESCAPE '!')
  AND (:text = '' OR lower(d.what) LIKE lower(:text) ESCAPE '!' OR lower(COALESCE(d.why, '')) LIKE lower(:text) ESCAPE '!'
       OR lower(COALESCE(d.plan, '')) LIKE lower(:text) ESCAPE '!'
       OR lower(COALESCE(d.outcome, '')) LIKE lower(:text) ESCAPE '!')
  AND (:after = ''
       OR (CASE d.state WHEN 'standing' THEN 1 ELSE 0 END, d.created_us, d.id)
          < (SELECT CASE a.state WHEN 'standing' THEN 1 ELSE 0 END, a.created_us, a.id FROM decision a
             WHERE a.id = :after))
ORDER BY CASE d.state WHEN 'standing' THEN 1 ELSE 0 END DESC, d.created_us DESC, d.id DESC
LIMIT :limit

-- Effects that were sent while their session had no open decision.
-- name: unwritten
SELECT e.id AS effect_id, e.session_id AS session_id, e.tool AS tool, e.key AS key, e.state AS state,
       e.first_dispatched_us AS dispatched_us, e.actor AS actor
FROM effect e
WHERE e.session_id = :session_id AND e.first_dispatched_us IS NOT NULL
  AND NOT EXISTS (
      SELECT 1 FROM decision d
      WHERE d.session_id = e.session_id AND d.created_us <= e.first_dispatched_us
        AND (d.closed_us IS NULL OR d.closed_us >= e.first_dispatched_us))
  AND (:after = '' OR (e.first_dispatched_us, e.id)
      > (SELECT a.first_dispatched_us, a.id FROM effect a WHERE a.id = :after))
ORDER BY e.first_dispatched_us, e.id
LIMIT :limit

-- name: caught
SELECT {columns:event}
FROM event
WHERE subject = :subject AND (:everywhere = 1 OR scope = :scope) AND {here} AND seq < :before_seq
ORDER BY seq DESC
LIMIT :limit
