-- Records of hooks: their sessions and tool calls, and whether a record is stored already.

-- The lock makes two hooks of one session run one after the other.
-- name: lock_session
SELECT id, scope, key, state, holder, fence, updated_us, git_dir, origin FROM session WHERE id = :id {for_update}

-- Renew the lease and the time of the last change.
-- name: extend
UPDATE session
SET lease_until_us = :lease_until_us, lease_boot = :lease_boot, lease_mono_us = :lease_mono_us,
    lease_for_us = :lease_for_us, updated_us = :now_us, preview = COALESCE(preview, :preview)
WHERE id = :id AND fence = :fence AND holder = :holder

-- name: preview
UPDATE session SET preview = COALESCE(preview, :preview) WHERE id = :id

-- name: known
SELECT 1 AS known FROM event WHERE subject = :subject AND type = :type AND occurred_us = :at_us LIMIT 1

-- Hook and importer write the same row, by session and call id. The second one adds the missing values. An answered
-- call is never pending again.
-- name: called
INSERT INTO tool_call (id, session_id, call_id, tool, status, input, output, summary, exit_code, duration_us, source,
                       called_us, answered_us, occurred_us, created_us, updated_us)
VALUES (:id, :session_id, :call_id, :tool, :status, :input, :output, :summary, :exit_code, :duration_us, 'hook',
        :called_us, :answered_us, :at_us, :now_us, :now_us)
ON CONFLICT (session_id, call_id) DO UPDATE
SET tool = COALESCE(tool_call.tool, excluded.tool),
    input = COALESCE(tool_call.input, excluded.input),
    output = COALESCE(tool_call.output, excluded.output),
    status = CASE WHEN tool_call.status IN ('pending', 'unknown') AND excluded.status <> 'pending'
                  THEN excluded.status ELSE tool_call.status END,
    summary = COALESCE(tool_call.summary, excluded.summary),
    exit_code = COALESCE(tool_call.exit_code, excluded.exit_code),
    duration_us = COALESCE(tool_call.duration_us, excluded.duration_us),
    occurred_us = CASE WHEN tool_call.called_us IS NULL AND excluded.called_us IS NOT NULL THEN excluded.called_us
                       ELSE tool_call.occurred_us END,
    called_us = COALESCE(tool_call.called_us, excluded.called_us),
    answered_us = COALESCE(tool_call.answered_us, excluded.answered_us),
    updated_us = excluded.updated_us
RETURNING id

-- The agent does not make a refused call.
-- name: held
UPDATE tool_call SET status = 'cancelled', updated_us = :now_us, answered_us = :at_us
WHERE session_id = :session_id AND call_id = :call_id AND status = 'pending'

-- A dispatched effect lets one call pass a gate that needs an effect.
-- name: dispatched_effect
SELECT id, tool, session_id, context FROM effect
WHERE id = :id AND attempt = :attempt AND state = 'dispatched'
{for_update}

-- name: passed
UPDATE effect SET context = :context, updated_us = :now_us
WHERE id = :id AND attempt = :attempt AND state = 'dispatched'

-- name: gates
SELECT {columns:gate}
FROM gate
WHERE removed_us IS NULL AND (paused_until_us IS NULL OR paused_until_us <= :now_us)
  AND ((repository = '' AND scope IN ('', :scope, :session_scope))
       OR (scope = :scope AND (repository = :repository OR git_dir = :git_dir OR origin = :origin))
       OR (scope = :session_scope AND repository = :session_repository))
ORDER BY id
LIMIT :limit

-- name: limited
SELECT 1 AS limited FROM budget WHERE removed_us IS NULL LIMIT 1

-- The newest session that an agent's hooks or transcripts changed.
-- name: last_heard
SELECT max(updated_us) AS us FROM session WHERE agent = :agent

-- name: session_called
SELECT id FROM session WHERE id = :session OR (scope = :scope AND key = :session) LIMIT 1

-- name: checked
SELECT seq FROM event WHERE subject = :agent AND type = 'hook.checked' AND summary = :native LIMIT 1

-- All imported transcripts of an agent.
-- name: imported
SELECT count(*) AS files FROM import_source WHERE agent = :agent

-- name: workspaces
SELECT DISTINCT cwd FROM session WHERE updated_us > :since_us AND cwd IS NOT NULL LIMIT :limit

-- name: acted
SELECT 1 AS found
WHERE EXISTS (SELECT 1 FROM event WHERE session_id = :id AND type = 'tool.called')
   OR EXISTS (
       SELECT 1 FROM effect
       WHERE state = 'dispatched' AND state IN ('planned', 'dispatched') AND COALESCE(session_id, '') = :id
   )
