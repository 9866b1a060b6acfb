-- The copies that this store knows. A copy exists only if its manifest does.

-- name: put
INSERT INTO copy (id, place, why, note, seq, size_bytes, actor, taken_us, verified_us, tested_us)
VALUES (:id, :place, :why, :note, :seq, :size_bytes, :actor, :taken_us, :verified_us, :tested_us)
ON CONFLICT (id) DO UPDATE SET verified_us = COALESCE(excluded.verified_us, copy.verified_us),
                               tested_us = COALESCE(excluded.tested_us, copy.tested_us)

-- name: forget
UPDATE copy SET forgotten_us = :now_us WHERE id = :id

-- name: newest
SELECT max(taken_us) AS taken_us, max(CASE WHEN verified_us IS NOT NULL THEN taken_us END) AS verified_us,
       max(CASE WHEN tested_us IS NOT NULL THEN taken_us END) AS tested_us, max(seq) AS seq
FROM copy
WHERE forgotten_us IS NULL

-- Returns a row if the journal has an event since the copy that is not about copies.
-- name: changed
SELECT seq FROM event
WHERE seq > :seq AND type NOT IN ('copy.taken', 'copy.verified', 'copy.tested', 'copy.forgotten')
ORDER BY seq
LIMIT 1
