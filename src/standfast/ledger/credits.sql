-- Credits: entries are added and never changed.

-- One transaction at a time adds entries to an account, so that its balance cannot change between read and write.
-- SQLite has one writer anyway.
-- name: alone [sqlite]
SELECT 1 AS alone

-- name: alone [postgres]
SELECT pg_advisory_xact_lock(hashtextextended(:name, 0)) IS NULL AS alone

-- name: add
INSERT INTO credit_entry (id, scope, account, unit, amount, key, hash, reason, actor, created_us, occurred_us,
                          git_dir, origin)
VALUES (:id, :scope, :account, :unit, :amount, :key, :hash, :reason, :actor, :now_us, :occurred_us, :git_dir, :origin)
ON CONFLICT (scope, key) DO NOTHING
RETURNING {columns:credit_entry}

-- name: by_key
SELECT {columns:credit_entry}
FROM credit_entry
WHERE scope = :scope AND key = :key

-- name: by_id
SELECT {columns:credit_entry}
FROM credit_entry
WHERE id = :id

-- Entries that were added after an entry with a known sum.
-- name: balance_since
SELECT CAST(COALESCE(SUM(amount), 0) AS bigint) AS balance, COUNT(*) AS entries, MAX(occurred_us) AS last_us,
       COALESCE(MAX(seq), 0) AS last_seq
FROM credit_entry
WHERE scope = :scope AND account = :account AND unit = :unit AND seq > :seq

-- name: kept_sum
SELECT version, data
FROM snapshot
WHERE scope = :scope AND fold = :fold AND stream = :stream
ORDER BY version DESC
LIMIT 1

-- name: keep_sum
INSERT INTO snapshot (scope, fold, stream, version, data, created_us)
VALUES (:scope, :fold, :stream, :version, :data, :now_us)
ON CONFLICT (scope, fold, stream, version) DO NOTHING

-- name: drop_sums
DELETE FROM snapshot WHERE scope = :scope AND fold = :fold AND stream = :stream AND version < :version

-- name: balance_at
SELECT CAST(COALESCE(SUM(amount), 0) AS bigint) AS balance, COUNT(*) AS entries, MAX(occurred_us) AS last_us
FROM credit_entry
WHERE scope = :scope AND account = :account AND unit = :unit AND occurred_us <= :at_us

-- name: balances
SELECT account, unit, CAST(SUM(amount) AS bigint) AS balance, COUNT(*) AS entries, MAX(occurred_us) AS last_us
FROM credit_entry
WHERE scope = :scope AND (account, unit) > (:account, :unit) AND occurred_us <= :at_us
GROUP BY account, unit
ORDER BY account, unit
LIMIT :limit

-- name: balances_of
SELECT account, unit, CAST(SUM(amount) AS bigint) AS balance, COUNT(*) AS entries, MAX(occurred_us) AS last_us
FROM credit_entry
WHERE scope = :scope AND account = :account AND unit > :unit AND occurred_us <= :at_us
GROUP BY account, unit
ORDER BY unit
LIMIT :limit

-- name: page
SELECT {columns:credit_entry}
FROM credit_entry
WHERE scope = :scope AND seq < :seq AND (:unit = '' OR unit = :unit)
ORDER BY seq DESC
LIMIT :limit

-- name: page_of
SELECT {columns:credit_entry}
FROM credit_entry
WHERE scope = :scope AND account = :account AND seq < :seq AND (:unit = '' OR unit = :unit)
ORDER BY seq DESC
LIMIT :limit
