"""The journal by when things happened, on SQLite without an index that every commit pays for.

`late_us` is 0 for a row that was told in order; otherwise how much later than it the latest row before it
happened (less than 0 for what was told of the future, which counts for nobody behind it). `occurred_us + late_us` never
falls from row to row. See footings/by_time.py; PostgreSQL keeps its index,
and there the column stays empty. Processes of before would tell rows without it: they are refused at their next write.
"""

from __future__ import annotations

from standfast.db.migrations.migration import Migration

MIGRATION = Migration(
    version=10,
    name="by_time",
    min_writer=10,
    text="""
ALTER TABLE event ADD COLUMN late_us BIGINT NOT NULL DEFAULT 0; -- [sqlite]
ALTER TABLE event ADD COLUMN late_us BIGINT; -- [postgres]
WITH passed (seq, occurred_us, latest_us) AS ( -- [sqlite]
    SELECT seq, occurred_us, max(CASE -- [sqlite]
        WHEN occurred_us <= time_us OR seq = (SELECT min(seq) FROM event) THEN occurred_us -- [sqlite]
    END) OVER (ORDER BY seq) FROM event -- [sqlite]
) -- [sqlite]
UPDATE event SET late_us = passed.latest_us - passed.occurred_us -- [sqlite]
FROM passed -- [sqlite]
WHERE passed.seq = event.seq AND passed.latest_us <> passed.occurred_us; -- [sqlite]
DROP INDEX event_by_time; -- [sqlite]
CREATE INDEX event_late ON event (occurred_us) WHERE late_us <> 0; -- [sqlite]
CREATE INDEX event_mark ON event (occurred_us + late_us) WHERE seq % 64 = 0; -- [sqlite]
""",
)
