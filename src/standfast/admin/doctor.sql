-- name: migrations
SELECT version, name, checksum FROM migration ORDER BY version

-- name: newest
SELECT time_us FROM event ORDER BY seq DESC LIMIT 1

-- The stored vectors, which a library or Python compares.
-- name: vectors
SELECT (SELECT count(*) FROM knowledge WHERE vector IS NOT NULL) + (SELECT count(*) FROM item_vector) AS n

-- Loops that wait because the clock was ahead: their last slot and their next one are in the future.
-- name: ahead
SELECT name, last_slot_us FROM loop
WHERE next_slot_us IS NOT NULL AND next_slot_us > :late_us AND last_slot_us > :late_us
ORDER BY name
LIMIT :limit
