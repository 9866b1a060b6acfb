-- Words in the index. The entry has the columns of the filters.

-- name: newest [sqlite]
SELECT e.occurred_us AS occurred_us, e.subject AS subject, e.kind AS kind
FROM search_words w JOIN search_entry e ON e.seq = w.rowid
WHERE search_words MATCH :fts
  AND (CAST(:everywhere AS integer) = 1 OR (e.scope = :scope AND {here:e}))
  AND (:repo IS NULL OR COALESCE(e.origin, e.git_dir) LIKE :repo ESCAPE '!')
  AND (:agent IS NULL OR e.agent = :agent)
  AND (:since_us IS NULL OR e.occurred_us >= :since_us)
  AND (:tool IS NULL OR e.tool = :tool)
  AND (:role IS NULL OR e.role = :role)
  AND (:kind IS NULL OR e.kind = :kind)
  AND (:session_id IS NULL OR e.session_id = :session_id)
  AND (e.occurred_us < :before_us OR (e.occurred_us = :before_us AND e.subject < :before_id))
ORDER BY e.occurred_us DESC, e.subject DESC
LIMIT :limit

-- PostgreSQL matches words in the entry itself.
-- name: newest [postgres]
SELECT e.occurred_us AS occurred_us, e.subject AS subject, e.kind AS kind
FROM search_entry e
WHERE e.words @@ CAST(:ts AS tsquery)
  AND (CAST(:everywhere AS integer) = 1 OR (e.scope = :scope AND {here:e}))
  AND (CAST(:repo AS text) IS NULL OR COALESCE(e.origin, e.git_dir) ILIKE :repo ESCAPE '!')
  AND (CAST(:agent AS text) IS NULL OR e.agent = :agent)
  AND (CAST(:since_us AS bigint) IS NULL OR e.occurred_us >= :since_us)
  AND (CAST(:tool AS text) IS NULL OR e.tool = :tool)
  AND (CAST(:role AS text) IS NULL OR e.role = :role)
  AND (CAST(:kind AS text) IS NULL OR e.kind = :kind)
  AND (CAST(:session_id AS text) IS NULL OR e.session_id = :session_id)
  AND (e.occurred_us < :before_us OR (e.occurred_us = :before_us AND e.subject < :before_id))
ORDER BY e.occurred_us DESC, e.subject DESC
LIMIT :limit

-- name: by_rank [sqlite]
SELECT e.occurred_us AS occurred_us, e.subject AS subject, e.kind AS kind
FROM search_words w JOIN search_entry e ON e.seq = w.rowid
WHERE search_words MATCH :fts
  AND (CAST(:everywhere AS integer) = 1 OR (e.scope = :scope AND {here:e}))
  AND (:repo IS NULL OR COALESCE(e.origin, e.git_dir) LIKE :repo ESCAPE '!')
  AND (:agent IS NULL OR e.agent = :agent)
  AND (:since_us IS NULL OR e.occurred_us >= :since_us)
  AND (:tool IS NULL OR e.tool = :tool)
  AND (:role IS NULL OR e.role = :role)
  AND (:kind IS NULL OR e.kind = :kind)
  AND (:session_id IS NULL OR e.session_id = :session_id)
ORDER BY bm25(search_words), e.occurred_us DESC
LIMIT :limit

-- Each engine ranks in its own way.
-- name: by_rank [postgres]
SELECT e.occurred_us AS occurred_us, e.subject AS subject, e.kind AS kind
FROM search_entry e
WHERE e.words @@ CAST(:ts AS tsquery)
  AND (CAST(:everywhere AS integer) = 1 OR (e.scope = :scope AND {here:e}))
  AND (CAST(:repo AS text) IS NULL OR COALESCE(e.origin, e.git_dir) ILIKE :repo ESCAPE '!')
  AND (CAST(:agent AS text) IS NULL OR e.agent = :agent)
  AND (CAST(:since_us AS bigint) IS NULL OR e.occurred_us >= :since_us)
  AND (CAST(:tool AS text) IS NULL OR e.tool = :tool)
  AND (CAST(:role AS text) IS NULL OR e.role = :role)
  AND (CAST(:kind AS text) IS NULL OR e.kind = :kind)
  AND (CAST(:session_id AS text) IS NULL OR e.session_id = :session_id)
ORDER BY ts_rank(e.words, CAST(:ts AS tsquery), 1) DESC, e.occurred_us DESC
LIMIT :limit

-- name: session_key
SELECT key FROM session WHERE id = :id

-- name: message_by
SELECT actor FROM message WHERE id = :id

-- name: decision_by
SELECT actor FROM decision WHERE id = :id

-- name: mail_from
SELECT provenance FROM mail WHERE id = :id
