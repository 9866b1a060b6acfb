-- What was applied, by the caller's key and the hash of the whole specification.

-- The second caller with the same key waits here for the first, and gets no row.
-- name: begin
INSERT INTO application (scope, key, spec_hash, refs, actor, applied_us, git_dir, origin)
VALUES (:scope, :key, :spec_hash, '[]', :actor, :now_us, :git_dir, :origin)
ON CONFLICT (scope, key) DO NOTHING
RETURNING key

-- name: by_key
SELECT scope, key, spec_hash, refs, actor, applied_us, git_dir, origin FROM application WHERE scope = :scope AND key = :key

-- name: finish
UPDATE application SET refs = :refs WHERE scope = :scope AND key = :key RETURNING key
