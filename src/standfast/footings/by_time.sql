-- The journal by when things happened: see by_time.py.

-- On SQLite the sum never falls: of the 64 rows before the first mark that is too late, one is the last before.
-- name: last_before [sqlite]
SELECT (SELECT occurred_us + late_us FROM event
        WHERE seq <= IFNULL((SELECT seq FROM event WHERE seq % 64 = 0 AND occurred_us + late_us >= :us
                             ORDER BY occurred_us + late_us, seq LIMIT 1), 9223372036854775807)
          AND occurred_us + late_us < :us
        ORDER BY seq DESC LIMIT 1) AS event_us,
       (SELECT MAX(occurred_us) FROM event WHERE late_us <> 0 AND occurred_us < :us) AS late_event_us

-- name: last_before [postgres]
SELECT MAX(occurred_us) AS event_us FROM event WHERE occurred_us < :us

-- Likewise: of the 64 rows behind the last mark that is too early, one is the first.
-- name: first_from [sqlite]
SELECT (SELECT occurred_us + late_us FROM event
        WHERE seq > IFNULL((SELECT seq FROM event WHERE seq % 64 = 0 AND occurred_us + late_us < :us
                            ORDER BY occurred_us + late_us DESC, seq DESC LIMIT 1), 0)
          AND occurred_us + late_us >= :us
        ORDER BY seq LIMIT 1) AS event_us,
       (SELECT MIN(occurred_us) FROM event WHERE late_us <> 0 AND occurred_us >= :us) AS late_event_us

-- name: first_from [postgres]
SELECT MIN(occurred_us) AS event_us FROM event WHERE occurred_us >= :us
