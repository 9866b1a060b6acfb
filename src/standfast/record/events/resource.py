"""`sf.events`: the methods on events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar, overload

from standfast import crash, serial
from standfast.clock import Duration, Time, duration_s
from standfast.core import journal
from standfast.core.checks import page_size, past_us
from standfast.core.journal import Event
from standfast.db.contract import Tx
from standfast.db.store import Resource, query, refused_inside, transactional
from standfast.errors import InvalidInput
from standfast.record.events import append as append_event
from standfast.record.events import consumers as event_consumers
from standfast.record.events import folds, queries
from standfast.record.events.consumers import Consuming
from standfast.record.events.follow import Following
from standfast.record.events.models import (
    Appended,
    Batch,
    Consumer,
    Difference,
    Folded,
    Item,
    Listed,
    Stream,
    Upcasts,
    checked_type,
    checked_version,
    item,
    made,
    stream_name,
)
from standfast.record.events.queries import Moment

S = TypeVar("S")

# Inside the resource class `list` is a method, so annotations there use these names instead of `list[…]`.
EventList: TypeAlias = "list[Event]"
ItemList: TypeAlias = "list[Item]"
StreamList: TypeAlias = "list[Stream]"
ConsumerList: TypeAlias = "list[Consumer]"
AppendedList: TypeAlias = "list[Appended]"


class Events(Resource):
    """Append-only streams of events: append, read, follow, consume and fold them."""

    __slots__ = ()

    # -- writes --------------------------------------------------------------------------------------

    def append(
        self,
        stream: str,
        type: str,
        data: serial.Json = None,
        *,
        expected_version: int | None = None,
        key: str | None = None,
        summary: str | None = None,
        occurred: Time | None = None,
        session: object = None,
    ) -> Appended:
        """Append one event to a stream. It gets the next version, without a gap.

        Raises VersionConflict if the stream is not at `expected_version` (0: it must have no event). A repeated `key`
        returns the first event. Raises KeyConflict if the key was used for another event, InvalidInput for a type that
        only standfast writes.
        """
        occurred_us = past_us(occurred, self.store.caller.clock.now_us(), "occurred")
        one = made(type, data, summary, occurred_us)
        return self._append_all(stream, [one], expected_version, key, session)[0]

    def append_many(
        self,
        stream: str,
        events: Iterable[object],
        *,
        expected_version: int | None = None,
        key: str | None = None,
        session: object = None,
    ) -> AppendedList:
        """Append events with consecutive versions: all of them, or none.

        Each event is `("type", data)`, or a mapping with `type`, `data`, `summary` and `occurred`.
        """
        return self._append_all(
            stream, [item(one, self.store.caller.clock.now_us()) for one in events], expected_version, key, session
        )

    def _append_all(
        self, stream: str, items: ItemList, expected_version: int | None, key: str | None, session: object
    ) -> AppendedList:
        checked_version(expected_version, "expected_version")
        named = None if session is None else str(getattr(session, "id", session))
        name = stream_name(stream)
        appended = self._write(
            lambda tx: append_event.append(tx, name, items, expected_version=expected_version, key=key, session=named)
        )
        crash.point("event.after_append")
        return appended

    # -- reads ---------------------------------------------------------------------------------------

    @query
    def read(self, tx: Tx, stream: str, *, after: int = 0, upto: int | None = None, limit: int = 50) -> EventList:
        """Events of a stream after version `after`, in order, up to version `upto`."""
        checked_version(after, "after")
        checked_version(upto, "upto")
        return queries.page(tx, stream_name(stream), after=after, upto=upto, limit=page_size(limit))

    @query
    def get(self, tx: Tx, stream: str, version: int) -> Event:
        """One event. Raises NotFound."""
        checked_version(version, "version")
        found = queries.page(tx, stream_name(stream), after=version - 1, upto=version, limit=1)
        if not found:
            raise queries.missing(tx, stream, version)
        return found[0]

    @query
    def list(
        self,
        tx: Tx,
        stream: str | None = None,
        *,
        type: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        newest: bool = False,
        everywhere: bool = False,
        limit: int = 50,
        after: str | int | None = None,
    ) -> Listed:
        """List the events of STREAM, or of the whole journal, oldest first.

        - `stream`: the name of the stream.
        - `type`: only list this type, or types that begin with this word: "order" is every "order.…".
        - `since`: only list events since this time: "tue 03:00", 3h.
        - `until`: only list events before this time.
        - `after`: start after this version of the stream, or after the `next` of the page before.

        A stream is in the order of its versions, the journal in the order of time. The journal includes the events that
        standfast wrote. `newest` selects the last page instead of the first.
        """
        since_us = past_us(since, tx.now_us(), "since")
        until_us = past_us(until, tx.now_us(), "until")
        return queries.listed(
            tx,
            stream=None if stream is None else stream_name(stream),
            type=checked_type(type),
            since_us=since_us,
            until_us=until_us,
            everywhere=everywhere,
            newest=newest,
            limit=limit,
            after=None if after is None else str(after),
        )

    @query
    def stream(self, tx: Tx, name: str) -> Stream:
        """A stream and its last version. Raises NotFound."""
        return queries.stream(tx, stream_name(name))

    @query
    def streams(self, tx: Tx, *, limit: int = 50, after: str = "") -> StreamList:
        """List the streams of this scope by name, each with its last version.

        - `after`: start after this name, the last one of the page before.
        """
        rows = tx.all(queries.SQL.streams, scope=self.scope, after=after, limit=page_size(limit))
        return [Stream(**row) for row in rows]

    def follow(
        self,
        stream: str | None = None,
        *,
        type: str | None = None,
        after: int | str | None = None,
        idle: Duration | None = None,
    ) -> Following:
        """Yield events as they come, from now on, or after `after`: a version of the stream, or a journal cursor.

        It ends if none comes for `idle`. No cursor is stored: use `consume` for that.
        """
        idle_s = duration_s(idle, "idle")
        refused_inside(self.tx, "events.follow")
        name = None if stream is None else stream_name(stream)
        return Following(
            self.store, name, checked_type(type), self.store.read(lambda tx: _place(tx, name, after)), idle_s
        )

    # -- consumers -----------------------------------------------------------------------------------

    @transactional
    def consumer(self, tx: Tx, name: str, stream: str | None = None, *, start: str = "beginning") -> Consumer:
        """Create the consumer if it does not exist, at the beginning, or at the end with start="now". Return it.

        Without a stream it reads the whole journal of this scope. Not journalled: a cursor is only a read mark.
        """
        return event_consumers.begin(tx, name, stream, start)

    def poll(self, name: str, stream: str | None = None, *, type: str | None = None, limit: int = 100) -> Batch:
        """The next events of a consumer. The same events are returned until they are committed."""
        checked_type(type)
        if self.tx is not None:
            return event_consumers.poll(self.tx, name, stream, type, limit).batch
        polled = self.store.read(lambda tx: event_consumers.poll(tx, name, stream, type, limit))
        while polled.more and not polled.batch:
            since = polled.batch
            polled = self.store.read(lambda tx: event_consumers.poll(tx, name, stream, type, limit, since=since))  # noqa: B023
        if polled.young:
            self.store.sync()  # no caller may act on a row that a crash could remove
        return polled.batch

    def commit(self, batch: Batch) -> Consumer:
        """Move the consumer's cursor to the end of this batch, also inside your own transaction.

        An empty batch changes nothing. Raises VersionConflict if another process has moved the cursor since the batch
        was read.
        """
        committed = self._write(lambda tx: event_consumers.commit(tx, batch))
        crash.point("event.after_commit")
        return committed

    def consume(
        self,
        name: str,
        stream: str | None = None,
        *,
        type: str | None = None,
        follow: bool = False,
        idle: Duration | None = None,
    ) -> Consuming:
        """Yield the events of a consumer. Asking for an event commits the one before.

        If the reader dies or leaves the loop, the current event comes again. With `follow` it waits for more events.
        """
        idle_s = duration_s(idle, "idle")
        refused_inside(self.tx, "events.consume")
        event_consumers.named(self.scope, name, stream)
        return Consuming(self, name, stream, checked_type(type), follow=follow, idle_s=idle_s)

    @query
    def consumers(self, tx: Tx, *, limit: int = 50, after: tuple[str, str] = ("", "")) -> ConsumerList:
        """List the consumers of this scope, with their cursors and the number of events they are behind."""
        return event_consumers.page(tx, limit=limit, after=after)

    @transactional
    def seek(self, tx: Tx, name: str, stream: str | None = None, *, to: str | int) -> Consumer:
        """Move a consumer's cursor. It reads later events next, and skips or repeats the others.

        - `stream`: the stream it reads; without it, the whole journal.
        - `to`: read after this version, from the `beginning`, from `now`, or after a cursor.
        """
        return event_consumers.seek(tx, name, stream, to)

    @transactional
    def forget(self, tx: Tx, name: str, stream: str | None = None) -> Consumer:
        """Delete a consumer and its cursor. Raises NotFound."""
        return event_consumers.forget(tx, name, stream)

    # -- folds ---------------------------------------------------------------------------------------

    # The second overload is for an empty `{}` or `[]`: then the type of the state comes from the function.
    @overload
    def fold(
        self,
        stream: str,
        function: Callable[[S, Event], S],
        start: S,
        *,
        name: str | None = ...,
        at: Moment = ...,
        upcasts: Upcasts | None = ...,
        returns: Any = ...,
        snapshot_every: int = ...,
    ) -> Folded[S]: ...
    @overload
    def fold(
        self,
        stream: str,
        function: Callable[[S, Event], S],
        start: Any,
        *,
        name: str | None = ...,
        at: Moment = ...,
        upcasts: Upcasts | None = ...,
        returns: Any = ...,
        snapshot_every: int = ...,
    ) -> Folded[S]: ...
    def fold(
        self,
        stream: str,
        function: Callable[[Any, Event], Any],
        start: Any,
        *,
        name: str | None = None,
        at: Moment = None,
        upcasts: Upcasts | None = None,
        returns: Any = None,
        snapshot_every: int = folds.SNAPSHOT_EVERY,
    ) -> Folded[Any]:
        """Compute a state from a stream with a pure function, now or at an earlier time.

        `at` is a version, a datetime, or a session (object, key or id): its end. With a `name`, snapshots are stored
        and only later events are read. If you change the function, change the name. `upcasts` converts old events.
        `returns` is the type of a state that is not plain JSON: a dataclass or a pydantic model.
        """
        refused_inside(self.tx, "events.fold")
        how = folds.recipe(function, start, name=name, returns=returns, upcasts=upcasts, every=snapshot_every)
        return folds.fold(self.store, stream_name(stream), how, at)

    # The second overload is for an empty `{}` or `[]`: then the type of the state comes from the function.
    @overload
    def diff(
        self,
        stream: str,
        function: Callable[[S, Event], S],
        start: S,
        *,
        between: tuple[Moment, Moment],
        name: str | None = ...,
        upcasts: Upcasts | None = ...,
        returns: Any = ...,
    ) -> Difference[S]: ...
    @overload
    def diff(
        self,
        stream: str,
        function: Callable[[S, Event], S],
        start: Any,
        *,
        between: tuple[Moment, Moment],
        name: str | None = ...,
        upcasts: Upcasts | None = ...,
        returns: Any = ...,
    ) -> Difference[S]: ...
    def diff(
        self,
        stream: str,
        function: Callable[[Any, Event], Any],
        start: Any,
        *,
        between: tuple[Moment, Moment],
        name: str | None = None,
        upcasts: Upcasts | None = None,
        returns: Any = None,
    ) -> Difference[Any]:
        """List the changes of a fold between two sessions, versions or times: `between=("session-3", "session-5")`."""
        refused_inside(self.tx, "events.diff")
        first, second = between
        how = folds.recipe(function, start, name=name, returns=returns, upcasts=upcasts, every=folds.SNAPSHOT_EVERY)
        stream = stream_name(stream)
        before, after = (folds.fold(self.store, stream, how, moment) for moment in (first, second))
        changes = folds.changes(before.state, after.state)
        truncated = len(changes) > folds.CHANGES_MAX
        return Difference(before, after, changes[: folds.CHANGES_MAX], truncated)

    @transactional
    def delete_snapshots(self, tx: Tx, fold: str | None = None, stream: str | None = None) -> int:
        """Delete the snapshots of folds, all of this scope or some, and return their number."""
        crash.point("event.before_snapshot")
        count = folds.delete(tx, fold, stream)
        if count:
            journal.append(tx, "snapshot.deleted", f"snapshot:{fold or 'all'}", summary=f"{count} snapshots")
        return count


def _place(tx: Tx, stream: str | None, after: int | str | None) -> str:
    if stream is not None:
        version = queries.last_version(tx, stream) if after is None else queries.version_in(str(after))
        return f"v:{version}"
    if after is None:
        return journal.latest(tx)
    if isinstance(after, int):
        raise InvalidInput("a version needs a stream", "name the stream, or give a cursor of the journal")
    journal.following(tx, after, 1)  # refuses text that is no cursor
    return after
