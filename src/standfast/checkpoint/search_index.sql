-- The index of words. `place` is what a source's mark counts in: the number of a row, or a time.

-- name: mark
SELECT mark FROM search_mark WHERE source = :source

-- name: move_mark
INSERT INTO search_mark (source, mark, updated_us)
VALUES (:source, :mark, :now_us)
ON CONFLICT (source) DO UPDATE SET mark = excluded.mark, updated_us = excluded.updated_us
WHERE search_mark.mark < excluded.mark

-- name: known
SELECT hash, version_us FROM search_entry WHERE subject = :subject

-- The words are as they were.
-- name: touch
UPDATE search_entry SET agent = :agent, version_us = :version_us
WHERE subject = :subject AND version_us < :version_us

-- A number is never used again, also not after its entry was removed: old words may still refer to it.
-- name: number
INSERT INTO search_mark (source, mark, updated_us)
VALUES ('entry', 1, :now_us)
ON CONFLICT (source) DO UPDATE SET mark = search_mark.mark + 1, updated_us = excluded.updated_us
RETURNING mark

-- name: entry
INSERT INTO search_entry (seq, subject, kind, scope, session_id, agent, role, tool, occurred_us, version_us, hash,
                          git_dir, origin)
VALUES (:seq, :subject, :kind, :scope, :session_id, :agent, :role, :tool, :occurred_us, :version_us, :hash, :git_dir,
        :origin)
ON CONFLICT (subject) DO UPDATE
SET seq = excluded.seq, agent = excluded.agent, tool = excluded.tool, version_us = excluded.version_us, hash = excluded.hash

-- The words of an entry: a table of their own for FTS5.
-- name: put_words [sqlite]
INSERT INTO search_words (rowid, body) VALUES (:seq, :body)

-- Each word with its position. standfast has split the text, so no parser of the server splits the words again.
-- name: put_words [postgres]
UPDATE search_entry
SET words = COALESCE(
    (SELECT CAST(string_agg(word || ':' || LEAST(n, 16383), ' ') AS tsvector)
     FROM unnest(string_to_array(CAST(:body AS text), ' ')) WITH ORDINALITY AS listed (word, n)
     WHERE word <> ''),
    CAST('' AS tsvector))
WHERE seq = :seq

-- name: clear
DELETE FROM search_entry

-- The only way to empty an FTS5 table that keeps no text.
-- name: clear_words [sqlite]
INSERT INTO search_words (search_words) VALUES ('delete-all')

-- The words go with their entries.
-- name: clear_words [postgres]
SELECT 1

-- name: clear_marks
DELETE FROM search_mark

-- name: last_event
SELECT max(seq) AS seq FROM event

-- name: messages
SELECT m.seq AS place, m.id AS subject, s.scope AS scope, s.git_dir AS git_dir, s.origin AS origin, m.session_id AS session_id, s.agent AS agent, m.role AS role,
       m.occurred_us AS occurred_us, m.created_us AS version_us, m.format AS format, m.content AS content
FROM message m JOIN session s ON s.id = m.session_id LEFT JOIN search_entry e ON e.subject = m.id
WHERE m.seq > :mark AND e.subject IS NULL
ORDER BY m.seq
LIMIT :limit

-- name: one_message
SELECT m.seq AS place, m.id AS subject, s.scope AS scope, s.git_dir AS git_dir, s.origin AS origin, m.session_id AS session_id, s.agent AS agent, m.role AS role,
       m.occurred_us AS occurred_us, m.created_us AS version_us, m.format AS format, m.content AS content
FROM message m JOIN session s ON s.id = m.session_id
WHERE m.id = :subject

-- name: settled_messages
SELECT max(seq) AS place
FROM (SELECT seq FROM message WHERE seq > :mark AND created_us < :before_us ORDER BY seq DESC LIMIT 1) AS last

-- name: mails
SELECT m.seq AS place, m.id AS subject, m.scope AS scope, m.git_dir AS git_dir, m.origin AS origin, m.session_id AS session_id, m.sender AS agent,
       m.sent_us AS occurred_us, m.sent_us AS version_us, m.subject AS title, m.body AS body
FROM mail m LEFT JOIN search_entry e ON e.subject = m.id
WHERE m.seq > :mark AND e.subject IS NULL
ORDER BY m.seq
LIMIT :limit

-- name: one_mail
SELECT m.seq AS place, m.id AS subject, m.scope AS scope, m.git_dir AS git_dir, m.origin AS origin, m.session_id AS session_id, m.sender AS agent,
       m.sent_us AS occurred_us, m.sent_us AS version_us, m.subject AS title, m.body AS body
FROM mail m
WHERE m.id = :subject

-- name: settled_mails
SELECT max(seq) AS place
FROM (SELECT seq FROM mail WHERE seq > :mark AND sent_us < :before_us ORDER BY seq DESC LIMIT 1) AS last

-- name: tool_calls
SELECT t.updated_us AS place, t.id AS subject, s.scope AS scope, s.git_dir AS git_dir, s.origin AS origin, t.session_id AS session_id, s.agent AS agent,
       t.tool AS tool, t.occurred_us AS occurred_us, t.updated_us AS version_us, t.input AS input, t.output AS output
FROM tool_call t JOIN session s ON s.id = t.session_id LEFT JOIN search_entry e ON e.subject = t.id
WHERE t.updated_us >= :mark AND (e.subject IS NULL OR e.version_us < t.updated_us)
ORDER BY t.updated_us
LIMIT :limit

-- name: one_tool_call
SELECT t.updated_us AS place, t.id AS subject, s.scope AS scope, s.git_dir AS git_dir, s.origin AS origin, t.session_id AS session_id, s.agent AS agent,
       t.tool AS tool, t.occurred_us AS occurred_us, t.updated_us AS version_us, t.input AS input, t.output AS output
FROM tool_call t JOIN session s ON s.id = t.session_id
WHERE t.id = :subject

-- name: settled_tool_calls
SELECT max(updated_us) AS place
FROM (SELECT updated_us FROM tool_call WHERE updated_us > :mark AND updated_us < :before_us
      ORDER BY updated_us DESC LIMIT 1) AS last

-- name: decisions
SELECT c.place AS place, d.id AS subject, d.scope AS scope, d.git_dir AS git_dir, d.origin AS origin, d.session_id AS session_id,
       COALESCE(d.agent, d.actor) AS agent, d.created_us AS occurred_us,
       COALESCE(d.closed_us, d.created_us) AS version_us, d.what AS what, d.why AS why, d.plan AS plan,
       d.outcome AS outcome, d.tags AS tags
FROM (SELECT subject, max(seq) AS place FROM event
      WHERE seq > :mark AND seq <= :upto AND type >= 'decision.' AND type < 'decision/'
      GROUP BY subject) AS c
     JOIN decision d ON d.id = c.subject LEFT JOIN search_entry e ON e.subject = d.id
WHERE e.subject IS NULL OR e.version_us < COALESCE(d.closed_us, d.created_us)
ORDER BY c.place

-- name: one_decision
SELECT 0 AS place, d.id AS subject, d.scope AS scope, d.git_dir AS git_dir, d.origin AS origin, d.session_id AS session_id,
       COALESCE(d.agent, d.actor) AS agent, d.created_us AS occurred_us,
       COALESCE(d.closed_us, d.created_us) AS version_us, d.what AS what, d.why AS why, d.plan AS plan,
       d.outcome AS outcome, d.tags AS tags
FROM decision d
WHERE d.id = :subject

-- name: tasks
SELECT c.place AS place, t.id AS subject, t.scope AS scope, t.git_dir AS git_dir, t.origin AS origin, t.session_id AS session_id, t.assignee AS agent,
       t.first_seen_us AS occurred_us, t.updated_us AS version_us, t.title AS title, t.body AS body,
       t.labels AS labels, t.reason AS reason
FROM (SELECT subject, max(seq) AS place FROM event
      WHERE seq > :mark AND seq <= :upto AND type >= 'task.' AND type < 'task/'
      GROUP BY subject) AS c
     JOIN task t ON t.id = c.subject LEFT JOIN search_entry e ON e.subject = t.id
WHERE e.subject IS NULL OR e.version_us < t.updated_us
ORDER BY c.place

-- name: one_task
SELECT 0 AS place, t.id AS subject, t.scope AS scope, t.git_dir AS git_dir, t.origin AS origin, t.session_id AS session_id, t.assignee AS agent,
       t.first_seen_us AS occurred_us, t.updated_us AS version_us, t.title AS title, t.body AS body,
       t.labels AS labels, t.reason AS reason
FROM task t
WHERE t.id = :subject

-- name: settled_events
SELECT max(seq) AS place
FROM (SELECT seq FROM event WHERE seq > :mark AND time_us < :before_us ORDER BY seq DESC LIMIT 1) AS last
