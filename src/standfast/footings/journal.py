"""The journal: one row for each change, in the transaction that makes the change.

Append-only. `time_us` is when standfast wrote it down, `occurred_us` when it happened. `source`
tells what standfast itself did (`seen`) from what an agent reports (`said`).

`seq` is an identity, not an order: on PostgreSQL a transaction that began early may commit
late. Readers that must see every row once use `tail` and its cursors, which are opaque:
`s:<seq>` on SQLite, `p:<xid>:<seq>` on PostgreSQL.

A receipt names a row and the hash of what it says; `verify` proves later that it still says so.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import NamedTuple

from standfast import serial
from standfast.clock import checked_us
from standfast.config.scope import Label
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, Store, query
from standfast.errors import Corrupt, InvalidInput, NotFound, StandfastError
from standfast.footings.checks import page_size

SQL = load(__name__)

SUMMARY_MAX = 200
_HASHED = (
    "time_us",
    "occurred_us",
    "scope",
    "actor",
    "holder",
    "source",
    "type",
    "subject",
    "session_id",
    "state",
    "stream",
    "version",
    "summary",
    "data",
)


class Receipt:
    """Proof that something was written: `seq` finds the row, `hash` says what it must say.

    `seq` is known once the transaction has been committed.
    """

    __slots__ = ("_fields", "seq")

    def __init__(self, fields: tuple[object, ...]) -> None:
        self._fields = fields
        self.seq: int | None = None

    @property
    def hash(self) -> str:
        return _hash(self._fields)

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    def __repr__(self) -> str:
        return f"<Receipt {self.seq}>"

    def as_json(self) -> dict[str, serial.Json]:
        return {"seq": self.seq, "hash": self.hash}


class Event(NamedTuple):
    """One row of the journal."""

    seq: int
    time_us: int
    occurred_us: int
    scope: str
    actor: str
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


class Page(NamedTuple):
    """Some events and the cursor to go on from. The cursor is valid also when nothing came."""

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
    """Write one row in `tx`. Nothing waits for it: the receipt's `seq` comes with the commit.

    Scope, label and session are the caller's, unless what changed belongs to another.
    """
    now_us = tx.now_us()
    caller = tx.caller
    label = caller.label if label is None else label
    fields = (  # in the order of _HASHED, which is that of the statement
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
    )
    receipt = Receipt(fields)
    tx.insert(SQL.append, receipt, (*fields, label.git_dir, label.origin))
    return receipt


def remember(store: Store) -> None:
    """Note the newest row in the memory of stores, once that row is durable."""
    if store.memory is not None:
        row = store.read(lambda tx: tx.maybe(SQL.newest))
        store.sync()  # visible is not yet durable
        store.memory.opened(store.caller.clock.now_us())
        if row is not None:
            store.note(row["seq"], row_hash(row))


def remember_about(store: Store, subject: str) -> None:
    """Note the newest row about `subject`, which this caller has just been acknowledged."""
    if store.memory is not None:
        row = store.read(lambda tx: tx.maybe(SQL.newest_about, subject=subject))
        if row is not None:
            store.note(row["seq"], row_hash(row))


class Journal(Room):
    """Reading the journal, and proving what it says."""

    __slots__ = ()

    @query
    def tail(self, tx: Tx, after: str | None = None, limit: int = 50) -> Page | StandfastError:
        """The next events after a cursor: none skipped, also those committed late, none repeated."""
        rows = following(tx, after, limit)
        cursor = cursor_of(tx, rows[-1]) if rows else _parse_cursor(tx, after).cursor(tx.dialect)
        return Page([event(row) for row in rows], cursor)

    @query
    def now(self, tx: Tx) -> str:
        """A cursor behind everything that is visible now."""
        return latest(tx)

    @query
    def about(self, tx: Tx, subject: str, *, after: int = 0, limit: int = 50) -> list[Event]:
        """What happened to one thing, in the order it was written."""
        rows = tx.all(SQL.about, subject=subject, seq=after, limit=page_size(limit))
        return [event(row) for row in rows]

    @query
    def verify(self, tx: Tx, receipt: str) -> Event | StandfastError:
        """The event a receipt names, if the journal still says what it said then.

        Raises InvalidInput for what is no receipt, NotFound for a row that is not there,
        Corrupt for a row that was changed.
        """
        seq, wanted = parse_receipt(receipt)
        row = tx.maybe(SQL.by_seq, seq=seq)
        if row is None:
            return NotFound(f"the journal has no row {seq}", "is this the store that gave the receipt? standfast where")
        if wanted != row_hash(row):
            return Corrupt(
                f"row {seq} of the journal does not say what the receipt says: it was changed, "
                "or the receipt is from another store",
                "compare the store: standfast where",
                code="receipt_mismatch",
            )
        return event(row)


def following(tx: Tx, after: str | None, limit: int) -> list[Row]:
    """The rows after a cursor, in the order in which every reader meets them."""
    limit = page_size(limit)
    place = _parse_cursor(tx, after)
    rows: list[Row] = []
    for floor, ceiling in _segments(tx):
        if ceiling is not None and place.seq > ceiling:
            continue  # the cursor stands in a later segment
        start = place if place.seq > floor else _Place("0", 0)
        asked: Row = {"xid": start.xid, "seq": start.seq, "floor": floor, "limit": limit - len(rows)}
        if ceiling is None:
            rows += tx.all(SQL.tail, **asked)
        else:
            rows += tx.all(SQL.tail_settled, ceiling=ceiling, **asked)
        if len(rows) >= limit:
            break
    return rows


def latest(tx: Tx) -> str:
    """The cursor behind everything that is visible in `tx`."""
    place = _Place("0", 0)
    for floor, ceiling in _segments(tx):
        row = tx.maybe(SQL.last_settled if ceiling is not None else SQL.last, floor=floor, ceiling=ceiling)
        place = _Place(row["xid"], row["seq"]) if row else place
    return place.cursor(tx.dialect)


def cursor_of(tx: Tx, row: Row) -> str:
    """The cursor behind a row of `following`."""
    return _Place(row["xid"], row["seq"]).cursor(tx.dialect)


_PLAIN = itemgetter(*Event._fields[:-1])  # all but `data`: a fold makes an event of every row it reads


def event(row: Row) -> Event:
    return Event._make((*_PLAIN(row), serial.read(row["data"])))


_SAID = itemgetter(*_HASHED)


def row_hash(row: Row) -> str:
    """The hash of what a row says."""
    return _hash(_SAID(row))


def _hash(fields: tuple[object, ...]) -> str:
    # No text may contain NUL, so NUL separates the fields.
    return serial.hash_text("\0".join("" if field is None else f"={field}" for field in fields))


_RECEIPT = r"(\d{1,18}):(h1:[0-9a-f]{64})"  # compiled on first use, as the next one


def parse_receipt(text: str) -> tuple[int, str]:
    """`4711:h1:…`, or the JSON object as the commands print it."""
    plain = text.strip()
    if plain.startswith("{"):
        found = serial.loads(plain, what="receipt", limit_bytes=10_000)
        found = found.get("receipt", found)
        plain = f"{found.get('seq')}:{found.get('hash')}" if isinstance(found, dict) else plain
    match = re.fullmatch(_RECEIPT, plain)
    if not match:
        raise InvalidInput(
            f"{serial.clean(text, 60)!r} is not a receipt",
            'a receipt is what --json prints: {"seq": 4711, "hash": "h1:…"}, or 4711:h1:…',
        )
    return int(match.group(1)), match.group(2)


class _Place(NamedTuple):
    xid: str
    seq: int

    def cursor(self, dialect: str) -> str:
        return f"s:{self.seq}" if dialect == "sqlite" else f"p:{self.xid}:{self.seq}"


_CURSOR = r"^(?:s:(\d{1,18})|p:(\d{1,20}):(\d{1,18}))$"


def _parse_cursor(tx: Tx, text: str | None) -> _Place:
    if text is None:
        return _Place("0", 0)
    match = re.match(_CURSOR, text)
    if not match:
        raise InvalidInput(f"{serial.clean(text, 60)!r} is not a cursor", "use the one that came with the last page")
    if match.group(1) is None:
        return _Place(match.group(2), int(match.group(3)))
    return _place_of(tx, int(match.group(1)))


def _place_of(tx: Tx, seq: int) -> _Place:
    row = tx.maybe(SQL.place, seq=seq) if tx.dialect == "postgres" and seq else None
    return _Place(row["xid"] if row else "0", seq)


def _segments(tx: Tx) -> list[tuple[int, int | None]]:
    """(floor, ceiling] of the rows of each cluster the journal has lived on; the last is open."""
    row = tx.maybe(SQL.settled) if tx.dialect == "postgres" else None
    bounds = [int(part) for part in row["value"].split(",") if part] if row else []
    return list(zip([0, *bounds], [*bounds, None], strict=True))
