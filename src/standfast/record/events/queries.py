"""Reading events: pages, and the version of a stream at an earlier time.

An earlier time is given as a version, a time, or a session (its end). The answer is always a version: the state at that
time is the fold of all events up to it. The time of recording counts, so an event that is recorded later never changes
an earlier state. A clock that is set back may put times out of order: then the events before the first later time
count.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from standfast import hints, serial
from standfast.core import journal
from standfast.core.checks import FAR_FUTURE_US, no_cursor, page_size
from standfast.core.journal import Event
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput, NotFound
from standfast.record.events.models import Listed, Stream
from standfast.record.sessions import queries as sessions

SQL = load(__name__)

Moment: TypeAlias = "int | datetime | str | Any"
"""A version, a time with its zone, a session's key or id, or an open session."""

DISORDER_MAX = 1000
"""Times are expected to be out of order within at most this many events of a stream."""

_NEXT = re.compile(r"^(?:v:)?(\d{1,18})$|^t:(-?\d{1,19}):(\d{1,18})$")


def page(tx: Tx, stream: str, *, after: int = 0, upto: int | None = None, limit: int) -> list[Event]:
    """Events of a stream after a version, in order."""
    return [journal.event(row) for row in rows(tx, stream, after=after, upto=upto, limit=limit)]


def rows(tx: Tx, stream: str, *, after: int, upto: int | None = None, limit: int) -> list[Row]:
    asked: Row = {"scope": tx.caller.scope, "stream": stream, "after": after, "limit": limit}
    return tx.all(SQL.page, upto=FAR_FUTURE_US if upto is None else upto, **asked)


def listed(
    tx: Tx,
    *,
    stream: str | None,
    type: str | None,
    since_us: int | None,
    until_us: int | None,
    everywhere: bool,
    newest: bool,
    limit: int,
    after: str | None,
) -> Listed:
    size = page_size(limit)
    asked: Row = {"scope": tx.caller.scope, "stream": stream, "type": type, "limit": size}
    timed = since_us is not None or until_us is not None or everywhere or stream is None
    if timed:
        found = _by_time(tx, asked, since_us, until_us, everywhere=everywhere, newest=newest, after=after)
    else:
        found = _by_version(tx, asked, newest=newest, after=after)
    events = [journal.event(row) for row in (reversed(found) if newest else found)]
    if newest or len(found) < size:
        return Listed(events, None)
    last = events[-1]
    return Listed(events, f"t:{last.occurred_us}:{last.seq}" if timed else f"v:{last.version}")


def _by_version(tx: Tx, asked: Row, *, newest: bool, after: str | None) -> list[Row]:
    if newest:
        return tx.all(SQL.newest, before=FAR_FUTURE_US, **asked)
    version = version_in(after)
    if asked["type"] is None:
        asked.pop("type")
        return tx.all(SQL.page, after=version, upto=FAR_FUTURE_US, **asked)
    return tx.all(SQL.of_type, after=version, **asked)


def _by_time(
    tx: Tx,
    asked: Row,
    since_us: int | None,
    until_us: int | None,
    *,
    everywhere: bool,
    newest: bool,
    after: str | None,
) -> list[Row]:
    asked |= {"everywhere": int(everywhere), "until_us": FAR_FUTURE_US if until_us is None else until_us}
    from_us = -FAR_FUTURE_US if since_us is None else since_us
    if newest:
        return tx.all(SQL.between_newest, from_us=from_us, **asked)
    seq = 0
    if after is not None:
        match = _NEXT.match(after)
        if not match or match.group(2) is None:
            raise no_cursor(after)
        from_us, seq = max(from_us, int(match.group(2))), int(match.group(3))
    return tx.all(SQL.between, from_us=from_us, seq=seq, **asked)


def version_in(after: str | None) -> int:
    if after is None:
        return 0
    match = _NEXT.match(after)
    if not match or match.group(1) is None:
        raise InvalidInput(f"{serial.clean(after, 40)!r} is no version", "after is a version, or the page's own `next`")
    return int(match.group(1))


def stream(tx: Tx, name: str) -> Stream:
    row = tx.maybe(SQL.stream, scope=tx.caller.scope, name=name)
    if row is None or not row["version"]:
        raise unknown(name)
    return Stream(**row)


def unknown(name: str) -> NotFound:
    return NotFound(f"there is no stream {serial.clean(name, 60)!r} in this scope", "standfast event streams")


def last_version(tx: Tx, name: str) -> int:
    row = tx.maybe(SQL.stream, scope=tx.caller.scope, name=name)
    return row["version"] if row is not None else 0


# -- moments ------------------------------------------------------------------------------------------------


def version_at(tx: Tx, name: str, moment: Moment) -> int:
    """The number of events of the stream at that time. Raises NotFound for an unknown session, InvalidInput."""
    last = last_version(tx, name)
    if moment is None:
        return last
    if isinstance(moment, bool):
        raise InvalidInput("give a version, a time or a session")
    if isinstance(moment, int):
        if moment < 0:
            raise InvalidInput(f"a version is 0 or more, not {moment}")
        return min(moment, last)
    if isinstance(moment, datetime):
        return _at_time(tx, name, last, _us(moment))
    session = moment if isinstance(moment, str) else getattr(moment, "id", None)
    if not isinstance(session, str):
        raise InvalidInput(
            f"{type(moment).__name__} is not a version, a time or a session", "a version, a datetime, or a session"
        )
    return _at_session(tx, name, last, session)


def _us(moment: datetime) -> int:
    return (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _at_session(tx: Tx, name: str, last: int, session: str) -> int:
    row = tx.maybe(SQL.last_of_session, session_id=sessions.named(tx, session)["id"])
    # The stream's row is locked before an event gets its `seq` until the commit, so `seq` grows with the version.
    return _search(tx, name, last, "seq", row["seq"] if row is not None else 0)


def _at_time(tx: Tx, name: str, last: int, time_us: int) -> int:
    found = _search(tx, name, last, "time_us", time_us)
    # If times are out of order, several versions fit. Take the first one, so that the answer never changes.
    for _ in range(DISORDER_MAX):
        asked: Row = {"scope": tx.caller.scope, "stream": name, "low": found - DISORDER_MAX, "high": found}
        later = tx.one(SQL.first_later, time_us=time_us, **asked)["version"]
        if later is None:
            break
        found = later - 1
    return found


def _search(tx: Tx, name: str, last: int, column: str, bound: int) -> int:
    """The last version whose `column` is at most `bound`, by binary search."""
    low, high = 0, last
    while low < high:
        middle = (low + high + 1) // 2
        row = tx.maybe(SQL.place, scope=tx.caller.scope, stream=name, version=middle)
        if row is None or row[column] <= bound:
            low = middle
        else:
            high = row["version"] - 1
    return low


def missing(tx: Tx, name: str, version: int) -> NotFound:
    last = last_version(tx, name)
    if not last:
        return unknown(name)
    return NotFound(
        f"stream {name!r} has {last} events; there is no version {version}", hints.command("event", "list", name)
    )
