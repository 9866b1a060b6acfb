"""The journal: one row for each change, in the transaction that makes the change.

It is append-only. `time_us` is when standfast recorded the event, `occurred_us` when it happened. `source` is `seen`
for what standfast itself did, and `said` for what an agent reported.

`seq` is an identity, not an order: on PostgreSQL a transaction that began early may commit late. Readers that must see
every row once use `tail` and its opaque cursors: `s:<seq>` on SQLite, `p:<xid>:<seq>` on PostgreSQL.

`core/receipts.py` has the hash of a row and the receipt that names it; `core/digests.py` covers the whole journal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from standfast import serial
from standfast.clock import checked_us
from standfast.config.scope import Label
from standfast.core.checks import page_size
from standfast.core.receipts import Receipt, parse_receipt, row_hash
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, Store, query
from standfast.errors import Corrupt, InvalidInput, NotFound, StandfastError
from standfast.models import Model

if TYPE_CHECKING:
    from standfast.core.digests import Checked

SQL = load(__name__)

SUMMARY_MAX = 200
SALT_BYTES = 16


class Event(Model):
    """One row of the journal."""

    seq: int
    time_us: int
    occurred_us: int
    scope: str
    agent: str
    holder: str
    source: str
    type: str
    subject: str
    session_id: str | None
    state: str | None
    stream: str | None
    version: int | None
    summary: str | None
    data: serial.Json


class Page(Model):
    """Some events and the cursor to continue from, which is valid also without events."""

    events: list[Event]
    cursor: str


def append(
    tx: Tx,
    type: str,
    subject: str,
    *,
    summary: str | None = None,
    data: serial.Json = None,
    session_id: str | None = None,
    state: str | None = None,
    source: str = "seen",
    occurred_us: int | None = None,
    stream: str | None = None,
    version: int | None = None,
    scope: str | None = None,
    label: Label | None = None,
) -> Receipt:
    """Write one row in `tx`. The receipt gets its `seq` at the commit.

    Scope, label and session are given if the changed row belongs to others than the caller's.
    """
    now_us = tx.now_us()
    caller = tx.caller
    label = caller.label if label is None else label
    said = (  # in the order of _SALTED, which is that of the statement
        now_us,
        now_us if occurred_us is None else checked_us(occurred_us, "occurred_us"),
        caller.scope if scope is None else scope,
        caller.actor,
        caller.holder,
        source,
        type,
        subject,
        caller.session_id if session_id is None else session_id,
        state,
        stream,
        version,
        serial.summary(summary, SUMMARY_MAX) if summary is not None else None,
        serial.dumps(data, what="data") if data is not None else None,
        label.git_dir,
        label.origin,
    )
    salt = os.urandom(SALT_BYTES)
    receipt = Receipt(said, salt)
    tx.insert(SQL.append, receipt, (*said, salt))
    return receipt


def remember(store: Store) -> None:
    """Note the newest row in the memory of stores, once that row is durable."""
    if store.memory is not None:
        row = store.read(lambda tx: tx.maybe(SQL.newest))
        store.sync()  # a visible row may not be on disk yet
        store.memory.opened(store.caller.clock.now_us())
        if row is not None:
            store.note(row["seq"], row_hash(row))


def last_seq(tx: Tx) -> int:
    """The number of the newest row; 0 for an empty journal."""
    row = tx.maybe(SQL.newest)
    return row["seq"] if row is not None else 0


def remembered(tx: Tx, seq: int, hash: str) -> bool:
    """Whether the journal has this row with this hash."""
    row = tx.maybe(SQL.by_seq, seq=seq)
    return row is not None and (not hash or row_hash(row) == hash)


def remember_own(store: Store) -> None:
    """Note the newest row that was acknowledged to this handle. On SQLite without a read, which opens a connection."""
    newest = store.engine.newest
    if newest is None:
        remember(store)
    elif store.memory is not None:
        store.memory.opened(store.caller.clock.now_us())
        store.note(newest[0], newest[2].hash)


def remember_about(store: Store, subject: str) -> None:
    """Note the newest row about `subject`, which was just acknowledged to this caller."""
    if store.memory is not None:
        row = store.read(lambda tx: tx.maybe(SQL.newest_about, subject=subject))
        if row is not None:
            store.note(row["seq"], row_hash(row))


class Journal(Resource):
    """The journal: read and verify it."""

    __slots__ = ()

    @query
    def tail(self, tx: Tx, after: str | None = None, limit: int = 50) -> Page:
        """The next events after a cursor. None is skipped, also if it was committed late, and none is repeated."""
        rows = following(tx, after, limit)
        cursor = cursor_of(rows[-1]) if rows else _parse_cursor(tx, after).cursor
        return Page([event(row) for row in rows], cursor)

    @query
    def now(self, tx: Tx) -> str:
        """A cursor behind all rows that are visible now."""
        return latest(tx)

    @query
    def about(self, tx: Tx, subject: str, *, after: int = 0, limit: int = 50) -> list[Event]:
        """The events about one subject, in the order in which they were recorded."""
        rows = tx.all(SQL.about, subject=subject, seq=after, limit=page_size(limit))
        return [event(row) for row in rows]

    @query
    def verify(self, tx: Tx, receipt: str) -> Event | StandfastError:
        """The event of a receipt, if its row is unchanged.

        Raises InvalidInput for text that is no receipt, NotFound for a row that is not there,
        Corrupt for a row that was changed.
        """
        seq, wanted = parse_receipt(receipt)
        row = tx.maybe(SQL.by_seq, seq=seq)
        if row is None:
            return NotFound(f"the journal has no row {seq}", "is this the store that gave the receipt? standfast where")
        if wanted != row_hash(row):
            return Corrupt(
                f"row {seq} of the journal differs from the receipt: it was changed, "
                "or the receipt is from another store",
                "compare the store: standfast where",
                code="receipt_mismatch",
            )
        return event(row)

    def check(
        self, *, against: str | None = None, progress: Callable[[str, int, int], object] | None = None
    ) -> Checked:
        """Compare every journal row with its digest and with a witness: `digest` in the manifest of a copy."""
        from standfast.core import digests
        from standfast.core.progress import quiet

        return digests.check(self.store, against, progress or quiet)


def following(tx: Tx, after: str | None, limit: int) -> list[Row]:
    """The rows after a cursor, in the same order for every reader."""
    limit = page_size(limit)
    place = _parse_cursor(tx, after)
    rows: list[Row] = []
    for floor, ceiling in _segments(tx, moved=bool(place.xid)):
        if ceiling is not None and place.seq > ceiling:
            continue  # the cursor is in a later segment
        start = place if place.seq > floor else _start(tx)._replace(seq=floor)
        asked: Row = {"xid": start.xid, "seq": start.seq, "floor": floor, "limit": limit - len(rows)}
        if ceiling is None:
            asked["xid"] = start.xid or _xid_of(tx, start.seq)
            rows += tx.all(SQL.tail, **asked)
        else:
            # Keep the order of the cursor: transactions may have committed in another order than that of their numbers.
            rows += tx.all(SQL.tail_settled if start.xid else SQL.tail_by_number, ceiling=ceiling, **asked)
        if len(rows) >= limit:
            break
    return rows


def latest(tx: Tx) -> str:
    """The cursor behind everything that is visible in `tx`."""
    place = _start(tx)
    for floor, ceiling in _segments(tx):
        row = tx.maybe(SQL.last_settled if ceiling is not None else SQL.last, floor=floor, ceiling=ceiling)
        place = _Place(row["xid"], row["seq"]) if row else place
    return place.cursor


def cursor_of(row: Row) -> str:
    """The cursor behind a row of `following`."""
    return _Place(row["xid"], row["seq"]).cursor


_PLAIN = itemgetter(*Event.column_names()[:-1])  # all fields except `data`: a fold makes an event of every row it reads


def event(row: Row) -> Event:
    return Event.from_values((*_PLAIN(row), serial.read(row["data"])))


class _Place(NamedTuple):
    xid: str
    """The number of its transaction; empty in the order of sequence numbers."""
    seq: int

    @property
    def cursor(self) -> str:
        return f"p:{self.xid}:{self.seq}" if self.xid else f"s:{self.seq}"


def _start(tx: Tx) -> _Place:
    """The cursor before the first row, in the order of the engine."""
    return _Place("0" if tx.dialect == "postgres" else "", 0)


_CURSOR = r"^(?:s:(\d{1,18})|p:(\d{1,20}):(\d{1,18}))$"


def _parse_cursor(tx: Tx, text: str | None) -> _Place:
    if text is None:
        return _start(tx)
    match = re.match(_CURSOR, text)
    if not match:
        raise InvalidInput(f"{serial.clean(text, 60)!r} is not a cursor", "use the one that came with the last page")
    if match.group(1) is None:
        return _Place(match.group(2), int(match.group(3)))
    return _Place("", int(match.group(1))) if int(match.group(1)) else _start(tx)


def _xid_of(tx: Tx, seq: int) -> str:
    """The transaction of the row that a cursor of SQLite names."""
    row = tx.maybe(SQL.place, seq=seq) if tx.dialect == "postgres" and seq else None
    return str(row["xid"]) if row else "0"


def settled_floor(tx: Tx) -> int:
    """Rows up to this one were written on another cluster. Their transaction numbers cannot be compared here."""
    return _segments(tx)[-1][0]


def _segments(tx: Tx, *, moved: bool = False) -> list[tuple[int, int | None]]:
    """The ranges (floor, ceiling] of the rows that each cluster wrote; the last range is open.

    On SQLite they matter to a cursor that `moved` with its store from PostgreSQL; others read by sequence number.
    """
    row = tx.maybe(SQL.settled) if moved or tx.dialect == "postgres" else None
    bounds = [int(part) for part in row["value"].split(",") if part] if row else []
    return list(zip([0, *bounds], [*bounds, None], strict=True))
