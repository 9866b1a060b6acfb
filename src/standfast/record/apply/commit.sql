-- Applied specifications, by the caller's key, with the hash of the specification.

-- A second caller with the same key waits here for the first one and gets no row.
-- name: begin
INSERT INTO application (scope, key, spec_hash, refs, actor, applied_us, git_dir, origin)
VALUES (:scope, :key, :spec_hash, '[]', :actor, :now_us, :git_dir, :origin)
ON CONFLICT (scope, key) DO NOTHING
RETURNING key

-- name: by_key
SELECT scope, key, spec_hash, refs, actor, applied_us, git_dir, origin FROM application WHERE scope = :scope AND key = :key

-- name: finish
UPDATE application SET refs = :refs WHERE scope = :scope AND key = :key RETURNING key
