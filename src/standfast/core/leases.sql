-- Named locks: one row per (scope, name), which is never deleted, so that fences only grow.

-- name: by_name
SELECT {columns:lease}
FROM lease
WHERE scope = :scope AND name = :name

-- name: by_name_for_update
SELECT {columns:lease}
FROM lease
WHERE scope = :scope AND name = :name
{for_update}

-- name: create
INSERT INTO lease (scope, name, holder, actor, lease_until_us, lease_boot, lease_mono_us, lease_for_us, fence,
                   acquired_us, note, git_dir, origin)
VALUES (:scope, :name, :holder, :actor, :lease_until_us, :lease_boot, :lease_mono_us, :lease_for_us, 1,
        :now_us, :note, :git_dir, :origin)
ON CONFLICT (scope, name) DO NOTHING
RETURNING {columns:lease}

-- name: take
UPDATE lease
SET {lease_set}, fence = fence + 1, acquired_us = :now_us,
    note = :note
WHERE scope = :scope AND name = :name AND fence = :fence
RETURNING {columns:lease}

-- name: extend
UPDATE lease
SET lease_until_us = :lease_until_us, lease_boot = :lease_boot, lease_mono_us = :lease_mono_us,
    lease_for_us = :lease_for_us
WHERE scope = :scope AND name = :name AND fence = :fence AND holder = :holder
RETURNING {columns:lease}

-- name: let_go
UPDATE lease
SET holder = NULL, lease_until_us = NULL, lease_boot = NULL, lease_mono_us = NULL
WHERE scope = :scope AND name = :name AND fence = :fence AND holder = :holder
RETURNING {columns:lease}

-- name: page
SELECT {columns:lease}
FROM lease
WHERE holder IS NOT NULL AND (:everywhere = 1 OR scope = :scope) AND name > :after
ORDER BY name
LIMIT :limit
