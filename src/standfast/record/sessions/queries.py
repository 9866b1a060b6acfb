"""Finding sessions: by key, by id, by the end of an id, and in pages."""

from __future__ import annotations

from standfast import serial
from standfast.core import keys, leases, lookup, repositories
from standfast.core.checks import PAGE_MAX, time_and_id
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput
from standfast.ids import is_id, like_suffix
from standfast.record.sessions.models import SessionRecord

SQL = load(__name__)


def find(tx: Tx, session: str) -> Row:
    """Find a session by its key in this scope, by its id, or by the end of its id."""
    row = by_key(tx, session)
    if row is None and is_id(session):
        row = tx.maybe(SQL.by_id, id=session)
    suffix = like_suffix(session, prefix="ses") if row is None else None
    if suffix is not None:
        rows = tx.all(SQL.by_suffix, pattern=f"%{suffix}")
        if len(rows) > 1:
            raise InvalidInput(f"{session!r} is the end of more than one session's id", "give more of it")
        row = rows[0] if rows else None
    if row is None:
        raise lookup.unknown(tx, "session", session)
    return row


def named(tx: Tx, session: str) -> Row:
    """The id and the key of a session of any repository, by its key in this scope or by its id. Raises NotFound."""
    row = tx.maybe(SQL.named, scope=tx.caller.scope, session=session)
    if row is None:
        raise lookup.unknown(tx, "session", session)
    return row


def find_by_id(tx: Tx, id: str) -> Row:
    row = tx.maybe(SQL.by_id, id=id)
    if row is None:
        raise lookup.unknown(tx, "session", id)
    return row


def by_key(tx: Tx, key: str) -> Row | None:
    """The session of a key. Raises Conflict if another repository uses it."""
    row = tx.maybe(SQL.by_key, scope=tx.caller.scope, key=keys.checked(key, "a session's key"))
    if row is not None:
        repositories.refuse(tx, row, f"session {row['key']!r}")
    return row


def crashed(tx: Tx, everywhere: bool, asked: Row, after: str | None) -> list[SessionRecord]:
    """Crashed sessions, the oldest first. Each held session is checked until `limit` are found."""
    found: list[SessionRecord] = []
    after_us, after_id = (-1, "") if after is None else time_and_id(after)
    while len(found) < asked["limit"]:
        rows = tx.all(
            SQL.held,
            scope=asked["scope"],
            everywhere=int(everywhere),
            after_us=after_us,
            after_id=after_id,
            limit=PAGE_MAX,
            **repositories.filtered(tx, everywhere=everywhere),
        )
        found += [one for row in rows if (one := record(tx, row)).crashed]
        if len(rows) < PAGE_MAX:
            break
        after_us, after_id = rows[-1]["updated_us"], rows[-1]["id"]
    return found[: asked["limit"]]


def record(tx: Tx, row: Row, receipt: Receipt | None = None) -> SessionRecord:
    command = serial.read(row["command"])
    return SessionRecord.from_row(
        row,
        agent=row["agent"] or row["actor"],
        command=None if command is None else tuple(command),
        cursor=serial.read(row["cursor"]),
        standing=leases.judge(tx, row).state,
        receipt=receipt,
    )
