"""Sessions as they stand: by key, by id or the end of one, in pages."""

from __future__ import annotations

from standfast import serial
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput, NotFound
from standfast.footings import keys, leases, repositories
from standfast.footings.checks import PAGE_MAX
from standfast.footings.journal import Receipt
from standfast.ids import is_id, like_suffix
from standfast.record.sessions.nouns import SessionRecord

SQL = load(__name__)


def find(tx: Tx, session: str) -> Row:
    """By key in this scope, by id, or by the end of an id."""
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
        raise unknown(session)
    return row


def find_by_id(tx: Tx, id: str) -> Row:
    row = tx.maybe(SQL.by_id, id=id)
    if row is None:
        raise unknown(id)
    return row


def by_key(tx: Tx, key: str) -> Row | None:
    """The session of a key. Raises Conflict if another repository uses it."""
    row = tx.maybe(SQL.by_key, scope=tx.caller.scope, key=keys.checked(key, "a session's key"))
    if row is not None:
        repositories.refuse(tx, row, f"session {row['key']!r}")
    return row


def unknown(session: str) -> NotFound:
    return NotFound(
        f"there is no session {serial.clean(session, 80)!r} in this scope",
        "standfast session list    (--all: every scope)",
    )


def crashed(tx: Tx, everywhere: bool, asked: Row) -> list[SessionRecord]:
    """Pages of held sessions, judged one by one until `limit` are found."""
    found: list[SessionRecord] = []
    after_us = -1
    while len(found) < asked["limit"]:
        rows = tx.all(
            SQL.held,
            scope=asked["scope"],
            everywhere=int(everywhere),
            after_us=after_us,
            limit=PAGE_MAX,
            **repositories.filtered(tx, everywhere=everywhere),
        )
        found += [one for row in rows if (one := record(tx, row)).crashed]
        if len(rows) < PAGE_MAX:
            break
        after_us = rows[-1]["updated_us"]
    return found[: asked["limit"]]


def record(tx: Tx, row: Row, receipt: Receipt | None = None) -> SessionRecord:
    command = serial.read(row["command"])
    derived = {
        "command": None if command is None else tuple(command),
        "cursor": serial.read(row["cursor"]),
        "standing": leases.stand(tx, row).state,
    }
    fields = {name: derived[name] if name in derived else row[name] for name in SessionRecord._fields[:-1]}
    return SessionRecord(**fields, receipt=receipt)
