"""What an item of a graph's memory means, as vectors: one for each text of it that is searched by meaning.

Processes of before would change an item and leave its vectors behind, and cannot read a thread's values where
they are laid down smaller: they are refused at their next write.
"""

from __future__ import annotations

from standfast.db.migrations.migration import Migration

MIGRATION = Migration(
    version=9,
    name="vectors",
    min_writer=9,
    text="""
-- `vector` is its length, a float of 64 bits, and then its direction, floats of 32 bits; little-endian.
CREATE TABLE item_vector (
    seq       BIGKEY,
    item_seq  BIGINT NOT NULL REFERENCES item (seq) ON DELETE CASCADE,
    field     TEXT NOT NULL,
    vector    BYTES NOT NULL,
    UNIQUE (item_seq, field)
) STRICT;
""",
)
