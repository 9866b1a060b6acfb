"""Consumers: each reader has a cursor, and only a commit moves it.

A batch has the cursor that it was read from, and its commit is a compare-and-set from that cursor. So if two processes
read under one name, one commits and the other is refused. If a reader dies before the commit, the cursor stays. In a
transaction of the caller, the cursor moves together with the caller's own writes: no event is skipped or repeated.

The cursor of a stream is a version (`v:7`), and a consumer of the whole journal has a cursor of the journal. Events of
a stream come in the order of their versions. Events of the whole journal come once each. On PostgreSQL they come in the
order of their transactions: of two concurrent transactions, the one that began later may have the smaller version.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple

from standfast import crash, serial
from standfast.core import journal, keys
from standfast.core.checks import NAME_MAX, PAGE_MAX, page_size
from standfast.core.journal import Event
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput, NotFound, StandfastError, VersionConflict
from standfast.record.events import follow as follow_events
from standfast.record.events import queries
from standfast.record.events.models import Batch, Consumer, stream_name
from standfast.record.followers import LOOK_AGAIN_S, Waiting

if TYPE_CHECKING:
    from standfast.record.events.resource import Events

SQL = load(__name__)

_PLACE = r"v:\d{1,18}|"
_CURSOR = r"s:\d{1,18}|p:\d{1,20}:\d{1,18}|"  # as the journal writes them

PAGES_MAX = 20
"""One read scans at most this many pages for an event that matches."""


def named(scope: str, name: object, stream: object) -> Row:
    return {
        "scope": scope,
        "name": keys.checked(name, "a consumer's name", limit=NAME_MAX),
        "stream": "" if stream is None or stream == "" else stream_name(stream),
    }


def place(tx: Tx, name: str, stream: str | None) -> str:
    """The committed cursor, or nothing."""
    row = tx.maybe(SQL.get, **named(tx.caller.scope, name, stream))
    return "" if row is None else str(row["cursor"])


class Polled(NamedTuple):
    """A batch; whether there are more events, and whether the newest event may not be on disk yet."""

    batch: Batch
    more: bool
    young: bool


def poll(tx: Tx, name: str, stream: str | None, type: str | None, limit: int, *, since: Batch | None = None) -> Polled:
    """The next events after the committed cursor, or after `since`, a batch without a match."""
    before = since.before if since is not None else place(tx, name, stream)
    cursor = since.cursor if since is not None else before
    wanted, young, more = page_size(limit), False, True
    # If every event matches, read no more than was asked for.
    size = wanted if stream and type is None else PAGE_MAX
    events: list[tuple[Event, str]] = []
    for _ in range(PAGES_MAX):
        found = follow_events.look(tx, stream or None, type, cursor, size)
        events += found.events
        cursor, young, more = found.cursor, young or found.young, found.more
        if len(events) >= wanted or not more:
            break
    if len(events) > wanted:
        events, more = events[:wanted], True
        cursor = events[-1][1]
    batch = Batch(name, stream or "", [event for event, _ in events], before, cursor, [at for _, at in events])
    return Polled(batch, more, young)


def commit(tx: Tx, batch: Batch) -> Consumer:
    """Move the cursor from the beginning of the batch to its end."""
    at = named(tx.caller.scope, batch.consumer, batch.stream)
    if not re.fullmatch(_PLACE if batch.stream else _CURSOR, batch.cursor):
        raise InvalidInput(f"{serial.clean(batch.cursor, 40)!r} is not a cursor", "commit what poll gave you")
    if not batch.moved:
        return _stands(tx, batch, at)
    crash.point("event.before_commit")
    moved: Row = at | {"cursor": batch.cursor, "version": _version(batch.cursor), "now_us": tx.now_us()}
    if batch.before:
        row = tx.maybe(SQL.move, before=batch.before, **moved)
    else:
        row = tx.maybe(SQL.first, **moved, **tx.caller.labelled())
    if row is None:
        raise _moved_on(tx, batch, at)
    return Consumer(at["scope"], at["name"], at["stream"], batch.cursor, moved["version"], tx.now_us())


def begin(tx: Tx, name: str, stream: str | None, start: str) -> Consumer:
    """Create it if it is missing; an existing cursor stays."""
    at = named(tx.caller.scope, name, stream)
    if start not in ("beginning", "now"):
        raise InvalidInput(f"start is 'beginning' or 'now', not {serial.clean(start, 40)!r}")
    cursor = _now(tx, stream) if start == "now" else _nothing(stream)
    moved: Row = {"cursor": cursor, "version": _version(cursor), "now_us": tx.now_us()}
    tx.maybe(SQL.first, **moved, **at, **tx.caller.labelled())
    return consumer(tx, at)


def seek(tx: Tx, name: str, stream: str | None, to: str | int) -> Consumer:
    """Set the cursor, to repeat or to skip events."""
    at = named(tx.caller.scope, name, stream)
    if to == "beginning":
        cursor = _nothing(stream)
    elif to == "now":
        cursor = _now(tx, stream)
    elif stream and isinstance(to, int) and not isinstance(to, bool):
        if not 0 <= to <= queries.last_version(tx, stream):
            raise InvalidInput(f"stream {stream!r} has {queries.last_version(tx, stream)} events, not {to}")
        cursor = f"v:{to}"
    elif not stream and isinstance(to, str):
        journal.following(tx, to, 1)  # refuses text that is no cursor
        cursor = to
    else:
        raise InvalidInput("seek needs a position", 'a version of its stream, "beginning" or "now"')
    before = place(tx, name, stream)
    crash.point("event.before_seek")
    moved: Row = {"cursor": cursor, "version": _version(cursor), "now_us": tx.now_us()}
    row = tx.one(SQL.seek, **moved, **at, **tx.caller.labelled())
    told = {"stream": at["stream"], "was": before, "is": cursor}
    journal.append(tx, "consumer.moved", f"consumer:{name}", summary=f"{name} to {to}", data=told)
    return Consumer(**row)


def forget(tx: Tx, name: str, stream: str | None) -> Consumer:
    at = named(tx.caller.scope, name, stream)
    crash.point("event.before_seek")
    row = tx.maybe(SQL.forget, **at)
    if row is None:
        raise _unknown(at)
    journal.append(tx, "consumer.forgotten", f"consumer:{name}", summary=name, data={"was": row["cursor"]})
    return Consumer(**row)


def consumer(tx: Tx, at: Row) -> Consumer:
    row = tx.maybe(SQL.get, **at)
    if row is None:
        raise _unknown(at)
    behind = queries.last_version(tx, row["stream"]) - row["version"] if row["stream"] else None
    return Consumer(**row, behind=behind)


def page(tx: Tx, *, limit: int, after: tuple[str, str]) -> list[Consumer]:
    rows = tx.all(SQL.page, scope=tx.caller.scope, name=after[0], stream=after[1], limit=page_size(limit))
    return [Consumer(**row) for row in rows]


class Consuming(Waiting[Event]):
    """An iterator over events. Asking for an event commits the one before. Leaving the loop commits nothing."""

    def __init__(
        self, resource: Events, name: str, stream: str | None, type: str | None, *, follow: bool, idle_s: float | None
    ) -> None:
        self._resource, self._name, self._stream, self._type = resource, name, stream, type
        self.patience_s = idle_s if follow else 0.0
        self._batch: Batch | None = None
        self._taken = 0
        self._watch = resource.store.watch() if follow else None

    def within(self, timeout_s: float | None) -> Event | None:
        """Commit the event before and return the next one; None if none comes in this time."""
        end = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        self.commit()
        while True:
            if self._batch:
                self._taken = 1
                return self._batch.events[0]
            self._batch = batch = self._resource.poll(self._name, self._stream, type=self._type)
            if batch:
                continue
            if batch.moved:
                self._resource.commit(batch)  # no event matches: the next start need not read these rows again
                continue
            left_s = end - time.monotonic()
            if self._watch is None or left_s <= 0:
                return None
            self._watch.wait(min(LOOK_AGAIN_S, left_s))

    def commit(self) -> None:
        """Commit the event in hand, without asking for the next."""
        batch, taken = self._batch, self._taken
        if batch is None or not taken:
            return
        self._batch, self._taken = None, 0  # if the commit is refused, the batch must be read again
        # The commit of the last event also passes the later events that did not match.
        self._resource.commit(batch.upto(1) if len(batch.events) > 1 else batch)
        if len(batch.events) > 1:
            self._batch = batch.rest(1)


# -- private functions ----------------------------------------------------------------------------------------


def _nothing(stream: str | None) -> str:
    return "v:0" if stream else "s:0"


def _now(tx: Tx, stream: str | None) -> str:
    return f"v:{queries.last_version(tx, stream)}" if stream else journal.latest(tx)


def _version(cursor: str) -> int:
    return int(cursor[2:]) if cursor.startswith("v:") else 0


def _stands(tx: Tx, batch: Batch, at: Row) -> Consumer:
    """The consumer after an empty commit, which changes nothing; a new one is at the beginning."""
    if batch.before or tx.maybe(SQL.get, **at) is not None:
        return consumer(tx, at)
    behind = queries.last_version(tx, at["stream"]) if at["stream"] else None
    return Consumer(at["scope"], at["name"], at["stream"], _nothing(at["stream"]), 0, tx.now_us(), behind)


def _unknown(at: Row) -> NotFound:
    where = f" of stream {at['stream']!r}" if at["stream"] else " of the journal"
    return NotFound(f"there is no consumer {at['name']!r}{where} here", "standfast event consumers")


def _moved_on(tx: Tx, batch: Batch, at: Row) -> StandfastError:
    row = tx.maybe(SQL.get, **at)
    there = row["cursor"] if row is not None else "nowhere: it was forgotten"
    return VersionConflict(
        f"consumer {batch.consumer!r} is at {there}, not {batch.before or 'its beginning'}: another process committed",
        "this batch was not committed: poll again, or give each reader its own name",
    )
