"""Before-images: what a method overwrote or deleted, kept in its own transaction for `undo` (admin/undo.py).

`keep` writes one image of one row, right after the journal row of the change. It costs one statement that no caller
waits for. Leases, counters and times of the last change are not kept: an undo must not give back an old lease.

Images are kept for 30 days and up to 256 MB; those younger than a day always.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from standfast.clock import DAY_US
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.ids import new_id

SQL = load(__name__)

KEPT_US = 30 * DAY_US
ALWAYS_US = DAY_US
BYTES_MAX = 256 << 20
_PURGE_AT = "00"
"""An image whose id ends in this, one of 1,024, removes images that are too old or too many."""

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "agent": ("scope", "name"),
    "decision": ("id",),
    "gate": ("id",),
    "item": ("scope", "path", "key"),
    "item_vector": ("item_seq", "field"),
    "knowledge": ("id",),
    "loop": ("id",),
    "message": ("id",),
    "task": ("id",),
    "task_need": ("task_id", "needs_id"),
    "thread": ("id",),
    "thread_checkpoint": ("thread_seq", "namespace", "checkpoint_id"),
    "thread_value": ("thread_seq", "segment", "n"),
    "thread_write": ("thread_seq", "namespace", "checkpoint_id", "task_id", "idx"),
}
"""The tables that have before-images, and what names a row of each. A counted `seq` may be given to another row."""
_LEASE = ("holder", "lease_until_us", "lease_boot", "lease_mono_us", "lease_for_us", "fence", "kept")
_COUNTED = ("seq", "occurrences", "failures", "last_slot_us", "first_seen_us", "last_seen_us", "updated_us")
NOT_KEPT = frozenset((*_LEASE, *_COUNTED))
"""Columns of an existing row that an undo leaves as they are."""


def keep(tx: Tx, table: str, old: Row | None, new: Row | None) -> None:
    """Keep what `old` said in the columns where `new` differs; None is a row that was not there, or is no more.

    Call it right after the journal row of the change.
    """
    if old is not None and new is not None:
        differing = [name for name in new if name not in NOT_KEPT and name in old and old[name] != new[name]]
        if not differing:
            return
        key = {name: old[name] for name in KEYS[table]}
        old, new = ({name: row[name] for name in differing} for row in (old, new))
    else:
        key = {name: (old or new or {})[name] for name in KEYS[table]}
    _put(tx, table, key, old, new)


def _put(tx: Tx, table: str, row_key: Row, old: Row | None, new: Row | None) -> None:
    key, was, became = (None if values is None else dumps(values) for values in (row_key, old, new))
    id, size = new_id("rem"), sum(len(text) for text in (key, was, became) if text is not None)
    image: Row = {"table_name": table, "row_key": key, "old_values": was, "new_values": became, "size_bytes": size}
    tx.run(SQL.keep, id=id, now_us=tx.now_us(), **image)
    if id.endswith(_PURGE_AT):
        purge(tx)


def keep_rows(tx: Tx, table: str, old: Sequence[Row], new: Sequence[Row]) -> None:
    """The same for all rows that a change was about, before and after it."""

    def by_key(rows: Sequence[Row]) -> dict[tuple[object, ...], Row]:
        return {tuple(row[name] for name in KEYS[table]): row for row in rows}

    before, after = by_key(old), by_key(new)
    for key in dict.fromkeys((*before, *after)):
        keep(tx, table, before.get(key), after.get(key))


def purge(tx: Tx) -> None:
    """Remove images that are too old, and the oldest of those that are too many bytes."""
    now_us = tx.now_us()
    tx.run(SQL.purge, month_ago_us=now_us - KEPT_US, day_ago_us=now_us - ALWAYS_US, bytes_max=BYTES_MAX)


def dumps(values: dict[str, Any]) -> str:
    """Columns as JSON; bytes are `{"bytes": base64}`, as in the rows of a copy."""
    import json

    return json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    from standfast.db.tables import plain  # loads the whole catalogue, and few rows have bytes

    return plain(value)


def loads(text: str) -> dict[str, Any]:
    import json

    from standfast.db.tables import from_plain

    return {name: from_plain(value) for name, value in json.loads(text).items()}
