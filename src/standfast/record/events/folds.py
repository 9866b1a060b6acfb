"""Folds: a pure function computes a state from the events of a stream, in the order of their versions.

A fold with a name stores snapshots and reads only the events after the newest one. Snapshots can be computed again, so
deleting them loses only time. If you change the function, change the name: old snapshots are not computed again.

The function is called outside any transaction. With a name, the state is always encoded to JSON and decoded again
before it is returned, so a state from a snapshot and a computed one are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple, TypeVar

from standfast import crash, serial
from standfast.core import keys, user_code
from standfast.core.checks import NAME_MAX, PAGE_MAX
from standfast.core.journal import Event
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Store
from standfast.errors import InvalidInput
from standfast.record.events import queries
from standfast.record.events.models import Change, Folded, Upcasts, upcasted
from standfast.record.events.queries import Moment

SQL = load(__name__)

S = TypeVar("S")

SNAPSHOT_EVERY = 500
"""A fold that read at least this many events stores a snapshot at the end."""
SNAPSHOT_STRIDE = 10_000
"""In a long stream a fold also stores a snapshot after each of this many events, for times long ago."""
SNAPSHOTS_KEPT = 64
SNAPSHOT_MAX_BYTES = 4 * 1024 * 1024
CHANGES_MAX = 10_000


class Recipe(NamedTuple):
    """The function, the start and the options of a fold, checked."""

    function: Callable[[Any, Event], Any]
    start: Any
    name: str | None
    returns: Any
    upcasts: Upcasts | None
    every: int

    def decoded(self, text: str) -> Any:
        return serial.decode(serial.read(text), self.returns, what=f"the state of fold {self.name!r}")


def recipe(
    function: Callable[[Any, Event], Any],
    start: Any,
    *,
    name: str | None,
    returns: Any,
    upcasts: Upcasts | None,
    every: int,
) -> Recipe:
    if not callable(function):
        raise InvalidInput("a fold is a function of the state and an event, which returns the next state")
    if name is not None:
        keys.checked(name, "a fold's name", limit=NAME_MAX)
    if every < 1:
        raise InvalidInput(f"snapshot_every counts events: 1 or more, not {every}")
    return Recipe(function, start, name, returns, upcasts, every)


def fold(store: Store, stream: str, how: Recipe, moment: Moment) -> Folded[Any]:
    """The state at a version, time or session, from the nearest earlier snapshot and the events after it."""
    upto, snapshot = store.read(lambda tx: _begin(tx, stream, how, moment))
    state, at = _started(how, snapshot)
    read = since = 0
    for page in _pages(store, stream, at, upto):
        for event in page:
            state = _next(how, state, event)
        read, since, at = read + len(page), since + len(page), page[-1].version or at
        if since >= SNAPSHOT_STRIDE and at < upto:
            state, since = _kept(store, stream, how, state, at), 0
    if how.name is not None:
        text = _text(how, state)
        if read >= how.every:
            _keep(store, stream, how.name, at, text)
        state = how.decoded(text)
    return Folded(state, stream, upto, read, snapshot["version"] if snapshot else 0)


def _begin(tx: Tx, stream: str, how: Recipe, moment: Moment) -> tuple[int, Row | None]:
    upto = queries.version_at(tx, stream, moment)
    if how.name is None:
        return upto, None
    asked: Row = {"scope": tx.caller.scope, "fold": how.name, "stream": stream}
    return upto, tx.maybe(SQL.nearest, version=upto, **asked)


def _started(how: Recipe, snapshot: Row | None) -> tuple[Any, int]:
    if snapshot is not None:
        return how.decoded(snapshot["data"]), snapshot["version"]
    return deepcopy(how.start), 0  # the function may change it in place


def _pages(store: Store, stream: str, after: int, upto: int) -> Iterator[list[Event]]:
    """Read a page at a time, so that a long stream is never in memory and no transaction stays open."""
    while after < upto:
        page = store.read(partial(_page, stream=stream, after=after, upto=upto))
        if not page:
            return
        yield page
        after = page[-1].version or upto


def _page(tx: Tx, *, stream: str, after: int, upto: int) -> list[Event]:
    return queries.page(tx, stream, after=after, upto=upto, limit=PAGE_MAX)


def _next(how: Recipe, state: Any, event: Event) -> Any:
    made = user_code.call(how.function, state, upcasted(event, how.upcasts))
    if made is None and state is not None:
        raise InvalidInput(
            f"the fold returned nothing for event {event.version} ({event.type})", "return the state, changed or not"
        )
    return made


# -- snapshots --------------------------------------------------------------------------------------------------


def _text(how: Recipe, state: Any) -> str:
    return serial.dumps(serial.encode(state, what=f"the state of fold {how.name!r}"), what="the state")


def _kept(store: Store, stream: str, how: Recipe, state: Any, version: int) -> Any:
    if how.name is None:
        return state
    text = _text(how, state)
    _keep(store, stream, how.name, version, text)
    return how.decoded(text)


def _keep(store: Store, stream: str, name: str, version: int, text: str) -> None:
    if len(text) > SNAPSHOT_MAX_BYTES:
        return  # folding again is slow, but snapshots of this size would fill the store

    def add(tx: Tx) -> None:
        at: Row = {"scope": tx.caller.scope, "fold": name, "stream": stream}
        tx.run(SQL.add, version=version, data=text, now_us=tx.now_us(), **at, **tx.caller.labelled())
        tx.run(SQL.trim, keep=SNAPSHOTS_KEPT, **at)

    crash.point("event.before_snapshot")
    store.write(add, durable=False)  # no fsync: a lost snapshot is computed again


def delete(tx: Tx, fold: str | None, stream: str | None) -> int:
    return len(tx.all(SQL.delete, scope=tx.caller.scope, fold=fold, stream=stream))


# -- differences --------------------------------------------------------------------------------------------------


def changes(was: object, now: object) -> list[Change]:
    """Every difference between two states, by JSON pointer; at most CHANGES_MAX + 1."""
    found: list[Change] = []
    for change in _walk("", serial.encode(was, what="the state before"), serial.encode(now, what="the state after")):
        found.append(change)
        if len(found) > CHANGES_MAX:
            break
    return found


def _walk(path: str, was: serial.Json, now: serial.Json) -> Iterator[Change]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted({*was, *now}):
            yield from _side(f"{path}/{_escaped(key)}", was, now, key, key in was, key in now)
    elif isinstance(was, list) and isinstance(now, list):
        for n in range(max(len(was), len(now))):
            yield from _side(f"{path}/{n}", was, now, n, n < len(was), n < len(now))
    elif type(was) is not type(now) or was != now:
        yield Change(path, "changed", was, now)


def _side(path: str, was: Any, now: Any, at: Any, before: bool, after: bool) -> Iterator[Change]:
    if before and after:
        yield from _walk(path, was[at], now[at])
    elif before:
        yield Change(path, "removed", was[at], None)
    else:
        yield Change(path, "added", None, now[at])


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


# -- the default fold ------------------------------------------------------------------------------------------------


def merged(state: Any, event: Event) -> Any:
    """Merge the event's data into the state. The last value of a key counts; null removes the key (RFC 7396)."""
    return _merge(state, event.data)


def _merge(state: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return state if patch is None else patch
    result = dict(state) if isinstance(state, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merge(result.get(key), value)
        else:
            result[key] = value
    return result
