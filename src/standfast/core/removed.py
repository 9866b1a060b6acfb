"""Before-images: the values that a method overwrote or deleted, stored in its transaction for `undo` (admin/undo.py).

`keep` writes the image of one row, right after the journal row of the change. It costs one statement that no caller
waits for. Leases, counters and times of the last change are left out: an undo must not restore an old lease.

Images are kept for 30 days and up to 256 MB. Images younger than a day are kept even above 256 MB.
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
"""An image whose id ends in this text, 1 of 1,024 on average, also removes images that are too old or too many."""

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
"""The tables with before-images, and the key of a row of each. `seq` is not used: another row may get the number."""
_LEASE = ("holder", "lease_until_us", "lease_boot", "lease_mono_us", "lease_for_us", "fence", "kept")
_COUNTED = ("seq", "occurrences", "failures", "last_slot_us", "first_seen_us", "last_seen_us", "updated_us")
NOT_KEPT = frozenset((*_LEASE, *_COUNTED))
"""Columns of an existing row that an undo leaves as they are."""


def keep(tx: Tx, table: str, old: Row | None, new: Row | None) -> None:
    """Keep the values of `old` in the columns in which `new` differs. None means that there was, or is, no row.

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
    """Keep the images of all rows of a change, given as they were before and after it."""

    def by_key(rows: Sequence[Row]) -> dict[tuple[object, ...], Row]:
        return {tuple(row[name] for name in KEYS[table]): row for row in rows}

    before, after = by_key(old), by_key(new)
    for key in dict.fromkeys((*before, *after)):
        keep(tx, table, before.get(key), after.get(key))


def purge(tx: Tx) -> None:
    """Remove images that are too old, and the oldest ones beyond the limit of bytes."""
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
