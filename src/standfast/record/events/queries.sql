-- Reading events: by stream in the order of their versions, and by time.

-- name: page
SELECT {columns:event}
FROM event
WHERE scope = :scope AND stream = :stream AND version > :after AND version <= :upto
ORDER BY version
LIMIT :limit

-- name: newest
SELECT {columns:event}
FROM event
WHERE scope = :scope AND stream = :stream AND version < :before
  AND (CAST(:type AS text) IS NULL OR type = :type OR substr(type, 1, length(CAST(:type AS text)) + 1) = :type || '.')
ORDER BY version DESC
LIMIT :limit

-- name: of_type
SELECT {columns:event}
FROM event
WHERE scope = :scope AND stream = :stream AND version > :after
  AND (type = :type OR substr(type, 1, length(CAST(:type AS text)) + 1) = :type || '.')
ORDER BY version
LIMIT :limit

-- name: between
SELECT {columns:event}
FROM event
WHERE occurred_us >= :from_us AND occurred_us < :until_us AND (occurred_us > :from_us OR seq > :seq)
  AND (:everywhere = 1 OR scope = :scope)
  AND (CAST(:stream AS text) IS NULL OR stream = :stream)
  AND (CAST(:type AS text) IS NULL OR type = :type OR substr(type, 1, length(CAST(:type AS text)) + 1) = :type || '.')
ORDER BY occurred_us, seq
LIMIT :limit

-- name: between_newest
SELECT {columns:event}
FROM event
WHERE occurred_us >= :from_us AND occurred_us < :until_us
  AND (:everywhere = 1 OR scope = :scope)
  AND (CAST(:stream AS text) IS NULL OR stream = :stream)
  AND (CAST(:type AS text) IS NULL OR type = :type OR substr(type, 1, length(CAST(:type AS text)) + 1) = :type || '.')
ORDER BY occurred_us DESC, seq DESC
LIMIT :limit

-- name: stream
SELECT scope, name, version, updated_us FROM stream WHERE scope = :scope AND name = :name

-- name: streams
SELECT scope, name, version, updated_us
FROM stream
WHERE scope = :scope AND name > :after AND version > 0
ORDER BY name
LIMIT :limit

-- name: place
SELECT version, seq, time_us
FROM event
WHERE scope = :scope AND stream = :stream AND version <= :version
ORDER BY version DESC
LIMIT 1

-- name: first_later
SELECT min(version) AS version
FROM event
WHERE scope = :scope AND stream = :stream AND version > :low AND version <= :high AND time_us > :time_us

-- name: last_of_session
SELECT seq FROM event WHERE session_id = :session_id ORDER BY seq DESC LIMIT 1
