"""Appending events: in one transaction, all or none, once per key, at an expected version.

An append locks the stream's row until the commit. Other appends to the stream wait, so the versions of one append are
consecutive. The key is looked up under this lock, so two concurrent calls with one key append once.
"""

from __future__ import annotations

from collections.abc import Sequence

from standfast import crash, hints, serial
from standfast.core import journal, keys
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput, KeyConflict, VersionConflict
from standfast.record.events.models import APPEND_MAX, KEY_MAX, Appended, Item
from standfast.record.sessions import queries as sessions

SQL = load(__name__)


def append(
    tx: Tx,
    stream: str,
    items: Sequence[Item],
    *,
    expected_version: int | None = None,
    key: str | None = None,
    session: str | None = None,
) -> list[Appended]:
    """Append the items. A refusal is raised, so that the rollback removes the row of a new stream."""
    if not items:
        raise InvalidInput("there is no event to append")
    if len(items) > APPEND_MAX:
        raise InvalidInput(f"{len(items):,} events at once, and the limit is {APPEND_MAX:,}", "append them in parts")
    scope = tx.caller.scope
    session_id = None if session is None else sessions.named(tx, session)["id"]
    crash.point("event.before_append")
    named: Row = {"scope": scope, "name": stream, "now_us": tx.now_us(), **tx.caller.labelled()}
    if key is not None or expected_version is not None:
        there = tx.one(SQL.hold, **named)["version"]
        before = None if key is None else _before(tx, stream, keys.checked(key, "a key", limit=KEY_MAX), items)
        if before is not None:
            return before
        if expected_version is not None and there != expected_version:
            raise moved_on(stream, there, expected_version)
    last = tx.one(SQL.advance, count=len(items), **named)["version"]
    subject = _subject(stream, key)
    first = last - len(items) + 1
    return [_written(tx, stream, subject, session_id, first + n, one) for n, one in enumerate(items)]


def moved_on(stream: str, there: int, expected: int) -> VersionConflict:
    return VersionConflict(
        f"stream {stream!r} is at version {there}, not {expected}",
        f"read what came since, then append at {there}: "
        + hints.command("event", "list", stream, "--after", str(expected)),
    )


def _written(tx: Tx, stream: str, subject: str, session_id: str | None, version: int, one: Item) -> Appended:
    receipt = journal.append(
        tx,
        one.type,
        subject,
        summary=one.summary,
        data=one.data,
        session_id=session_id,
        source="said",
        occurred_us=one.occurred_us,
        stream=stream,
        version=version,
    )
    return Appended(stream, version, one.type, tx.now_us(), receipt)


def _subject(stream: str, key: str | None) -> str:
    return f"stream:{stream}" if key is None else f"stream:{stream}:{key}"


def _before(tx: Tx, stream: str, key: str, items: Sequence[Item]) -> list[Appended] | None:
    """The events that this key appended before. Raises KeyConflict if they differ from `items`."""
    asked: Row = {"subject": _subject(stream, key), "scope": tx.caller.scope, "stream": stream}
    rows = tx.all(SQL.keyed, limit=APPEND_MAX, **asked)
    if not rows:
        return None
    said = [(row["type"], serial.canonical(serial.read(row["data"]))) for row in rows]
    if said != [(one.type, serial.canonical(one.data)) for one in items]:
        raise KeyConflict(
            f"the key {serial.clean(key, 60)!r} was used for other events of stream {stream!r}: "
            f"version {rows[0]['version']}, {rows[0]['type']}",
            hints.command("event", "list", stream, "--after", str(rows[0]["version"] - 1)),
        )
    return [Appended(stream, row["version"], row["type"], row["time_us"]) for row in rows]
