-- Labels of repositories and the id that each means. '' replaces a part that a label lacks.

-- name: exact
SELECT id FROM repository WHERE git_dir = :git_dir AND origin = :origin

-- The oldest row that shares a part with the label: rows are only added, so the answer never changes.
-- name: nearest
SELECT id FROM repository
WHERE (git_dir = :git_dir AND git_dir <> '') OR (origin = :origin AND origin <> '')
ORDER BY created_us, git_dir, origin
LIMIT 1

-- Whether a chain of labels connects two labels: each shares a part with the next.
-- name: leads_to
WITH RECURSIVE reached (git_dir, origin) AS (
    SELECT CAST(:git_dir AS TEXT), CAST(:origin AS TEXT)
    UNION
    SELECT r.git_dir, r.origin
    FROM repository r JOIN reached c
      ON (r.git_dir = c.git_dir AND c.git_dir <> '') OR (r.origin = c.origin AND c.origin <> '')
)
SELECT 1 AS one FROM reached
WHERE (git_dir = :to_git_dir AND git_dir <> '') OR (origin = :to_origin AND origin <> '')
LIMIT 1

-- name: add
INSERT INTO repository (git_dir, origin, id, created_us)
VALUES (:git_dir, :origin, :id, :now_us)
ON CONFLICT (git_dir, origin) DO NOTHING

-- On SQLite a writer is alone anyway.
-- name: alone [sqlite]
SELECT 1 AS alone

-- Two programs with different labels of one repository must agree on its id.
-- name: alone [postgres]
SELECT pg_advisory_xact_lock(hashtextextended('repository', 0)) IS NULL AS alone

-- The time and the database account of the first journal row about a subject.
-- name: first_event
SELECT time_us, db_user FROM event WHERE subject = :subject ORDER BY seq LIMIT 1
