-- What `undo` and `verify` need: before-images, and digests of the journal.

-- One row of a table that a method overwrote, deleted or added. `row_key` names it; `old_values` and `new_values` are
-- the columns that changed. Without old values the row was added, without new ones it was deleted.
CREATE TABLE removed (
    id          TEXT NOT NULL PRIMARY KEY,
    event_seq   BIGINT NOT NULL,
    table_name  TEXT NOT NULL,
    row_key     TEXT NOT NULL,
    old_values  TEXT,
    new_values  TEXT,
    size_bytes  BIGINT NOT NULL,
    removed_us  BIGINT NOT NULL,
    undone_us   BIGINT
) STRICT;
CREATE INDEX removed_by_event ON removed (event_seq);
CREATE INDEX removed_by_time ON removed (removed_us, id, size_bytes);

-- One stretch of the journal, in the order of `seq`. `hash` is chained to the stretch before. `marks` has 16 bytes for
-- each row: its number, and the start of its own hash, so that a check can name the row.
CREATE TABLE digest (
    n            BIGINT NOT NULL PRIMARY KEY,
    upto_seq     BIGINT NOT NULL,
    hash         TEXT NOT NULL,
    marks        BYTES NOT NULL,
    created_us   BIGINT NOT NULL
) STRICT;
