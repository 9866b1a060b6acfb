-- name: twice
-- Keys that exist without a scope and in a scope that is the name of a repository: an older version, or a program
-- with scope= by accident, made the second one.
SELECT kind, key, scope FROM (
    SELECT 'session' AS kind, t.key, t.scope FROM session t
    WHERE EXISTS (SELECT 1 FROM session o WHERE o.scope = '' AND o.key = t.key)
    UNION ALL
    SELECT 'effect', t.key, t.scope FROM effect t
    WHERE EXISTS (SELECT 1 FROM effect o WHERE o.scope = '' AND o.key = t.key)
    UNION ALL
    SELECT 'webhook', t.event_id, t.scope FROM webhook_event t
    WHERE EXISTS (SELECT 1 FROM webhook_event o WHERE o.scope = '' AND o.source = t.source AND o.event_id = t.event_id)
    UNION ALL
    SELECT 'credit', t.key, t.scope FROM credit_entry t
    WHERE EXISTS (SELECT 1 FROM credit_entry o WHERE o.scope = '' AND o.key = t.key)
    UNION ALL
    SELECT 'mail', t.key, t.scope FROM mail t
    WHERE EXISTS (SELECT 1 FROM mail o WHERE o.scope = '' AND o.key = t.key)
    UNION ALL
    SELECT 'loop', t.name, t.scope FROM loop t
    WHERE t.state <> 'removed' AND EXISTS
        (SELECT 1 FROM loop o WHERE o.scope = '' AND o.name = t.name AND o.state <> 'removed')
    UNION ALL
    SELECT 'lock', t.name, t.scope FROM lease t
    WHERE t.holder IS NOT NULL AND EXISTS
        (SELECT 1 FROM lease o WHERE o.scope = '' AND o.name = t.name AND o.holder IS NOT NULL)
) AS found
WHERE scope <> ''
  AND scope IN (SELECT git_dir FROM repository UNION SELECT origin FROM repository UNION SELECT id FROM repository)
ORDER BY kind, key, scope
LIMIT :limit
