-- The actors that wrote the text of a row that has no column for its author.

-- name: wrote
SELECT actor
FROM event
WHERE subject = :subject AND type IN (:one, :two, :three)
GROUP BY actor
ORDER BY max(seq) DESC
LIMIT :limit
