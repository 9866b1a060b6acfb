"""`sf.events`: the verbs on events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, TypeVar, overload

from standfast import crash, serial
from standfast.clock import checked_us
from standfast.db.contract import Tx
from standfast.db.store import Room, query, refused_inside, verb
from standfast.errors import InvalidInput
from standfast.footings import journal
from standfast.footings.checks import page_size
from standfast.footings.journal import Event
from standfast.record.events import appending, consuming, folding, reading
from standfast.record.events.consuming import Consuming
from standfast.record.events.following import Following
from standfast.record.events.nouns import (
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
from standfast.record.events.reading import Moment

S = TypeVar("S")

# In the room `list` is a verb, so that the types need other names there.
EventList: TypeAlias = "list[Event]"
ItemList: TypeAlias = "list[Item]"
StreamList: TypeAlias = "list[Stream]"
ConsumerList: TypeAlias = "list[Consumer]"
AppendedList: TypeAlias = "list[Appended]"


class Events(Room):
    """What happened, in streams of your own naming: append, read, follow, consume, fold. Never changed."""

    __slots__ = ()

    # -- writing -------------------------------------------------------------------------------------

    def append(
        self,
        stream: str,
        type: str,
        data: serial.Json = None,
        *,
        expected_version: int | None = None,
        key: str | None = None,
        summary: str | None = None,
        occurred_us: int | None = None,
        session: object = None,
    ) -> Appended:
        """Put one event at the end of a stream. Its version is the next one, without a gap.

        Raises VersionConflict, naming the version there, if the stream is not at `expected_version`
        (0: it must have no event yet). One `key` appends once, however often it is called; KeyConflict
        if it was used for another event. Raises InvalidInput for a type of standfast's own.
        """
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
        """All of them, one after another with nothing between, or none.

        Each is `("type", data)`, or a mapping with `type`, `data`, `summary` and `occurred_us`.
        """
        return self._append_all(stream, [item(one) for one in events], expected_version, key, session)

    def _append_all(
        self, stream: str, items: ItemList, expected_version: int | None, key: str | None, session: object
    ) -> AppendedList:
        checked_version(expected_version, "expected_version")
        named = None if session is None else str(getattr(session, "id", session))
        name = stream_name(stream)
        appended = self._write(
            lambda tx: appending.append(tx, name, items, expected_version=expected_version, key=key, session=named)
        )
        crash.point("event.after_append")
        return appended

    # -- reading -------------------------------------------------------------------------------------

    @query
    def read(self, tx: Tx, stream: str, *, after: int = 0, upto: int | None = None, limit: int = 50) -> EventList:
        """Events of a stream behind version `after`, in their order; `upto` is the last version wanted."""
        checked_version(after, "after")
        checked_version(upto, "upto")
        return reading.page(tx, stream_name(stream), after=after, upto=upto, limit=page_size(limit))

    @query
    def get(self, tx: Tx, stream: str, version: int) -> Event:
        """One event. Raises NotFound."""
        checked_version(version, "version")
        found = reading.page(tx, stream_name(stream), after=version - 1, upto=version, limit=1)
        if not found:
            raise reading.missing(tx, stream, version)
        return found[0]

    @query
    def list(
        self,
        tx: Tx,
        stream: str | None = None,
        *,
        type: str | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        newest: bool = False,
        everywhere: bool = False,
        limit: int = 50,
        after: str | int | None = None,
    ) -> Listed:
        """A page of events: of a stream in the order of its versions; otherwise by when they happened.

        Without a stream it is the whole journal of this scope, with what standfast itself wrote.
        `type` is a type or its first words: `order` is every `order.…`. With `newest` it is the last page.
        """
        return reading.listed(
            tx,
            stream=None if stream is None else stream_name(stream),
            type=checked_type(type),
            since_us=checked_us(since_us, "since_us"),
            until_us=checked_us(until_us, "until_us"),
            everywhere=everywhere,
            newest=newest,
            limit=limit,
            after=None if after is None else str(after),
        )

    @query
    def stream(self, tx: Tx, name: str) -> Stream:
        """A stream and its last version. Raises NotFound."""
        return reading.stream(tx, stream_name(name))

    @query
    def streams(self, tx: Tx, *, limit: int = 50, after: str = "") -> StreamList:
        """List the streams of this scope by name, each with its last version.

        - `after`: start after this name, the last one of the page before.
        """
        rows = tx.all(reading.SQL.streams, scope=self.scope, after=after, limit=page_size(limit))
        return [Stream(**row) for row in rows]

    @query
    def version_at(self, tx: Tx, stream: str, at: Moment) -> int:
        """How many events the stream had at a moment: a version, a time, or a session as it left it."""
        return reading.version_at(tx, stream_name(stream), at)

    def follow(
        self,
        stream: str | None = None,
        *,
        type: str | None = None,
        after: int | str | None = None,
        idle_s: float | None = None,
    ) -> Following:
        """Events as they come, from now on; or behind `after`, a version of the stream or a cursor of the journal.

        It ends once nothing has come for `idle_s`. Nothing is remembered: see `consume`.
        """
        refused_inside(self.tx, "events.follow")
        name = None if stream is None else stream_name(stream)
        return Following(
            self.store, name, checked_type(type), self.store.read(lambda tx: _place(tx, name, after)), idle_s
        )

    # -- consuming -----------------------------------------------------------------------------------

    @verb
    def consumer(self, tx: Tx, name: str, stream: str | None = None, *, start: str = "beginning") -> Consumer:
        """The consumer of this name, made if need be: at the beginning, or with start="now" behind what is there.

        Without a stream it reads the whole journal of this scope. Not journalled: a place is a read mark.
        """
        return consuming.begin(tx, name, stream, start)

    def poll(self, name: str, stream: str | None = None, *, type: str | None = None, limit: int = 100) -> Batch:
        """The next events behind the consumer's place; asked again, the same ones, until they are committed."""
        checked_type(type)
        if self.tx is not None:
            return consuming.poll(self.tx, name, stream, type, limit).batch
        polled = self.store.read(lambda tx: consuming.poll(tx, name, stream, type, limit))
        while polled.more and not polled.batch:
            since = polled.batch
            polled = self.store.read(lambda tx: consuming.poll(tx, name, stream, type, limit, since=since))  # noqa: B023
        if polled.young:
            self.store.sync()  # visible is not yet durable, and nobody may act on what could still vanish
        return polled.batch

    def commit(self, batch: Batch) -> Consumer:
        """Move the consumer's place behind this batch. In a transaction, together with everything else in it.

        A batch in which nothing came changes nothing, also for a consumer that has never committed anything.
        Raises VersionConflict if the place is not where the batch was read: somebody else commits for it.
        """
        committed = self._write(lambda tx: consuming.commit(tx, batch))
        crash.point("event.after_commit")
        return committed

    def consume(
        self,
        name: str,
        stream: str | None = None,
        *,
        type: str | None = None,
        follow: bool = False,
        idle_s: float | None = None,
    ) -> Consuming:
        """Events one by one; asking for the next commits the one before.

        Whoever dies with an event in hand, or leaves the loop, finds it again. With `follow` it waits for more.
        """
        refused_inside(self.tx, "events.consume")
        consuming.named(self.scope, name, stream)
        return Consuming(self, name, stream, checked_type(type), follow=follow, idle_s=idle_s)

    @query
    def consumers(self, tx: Tx, *, limit: int = 50, after: tuple[str, str] = ("", "")) -> ConsumerList:
        """List the consumers of this scope, with their cursors and how far they are behind."""
        return consuming.page(tx, limit=limit, after=after)

    @verb
    def seek(self, tx: Tx, name: str, stream: str | None = None, *, to: str | int) -> Consumer:
        """Move a consumer's cursor. It reads later events next, and skips or repeats the others.

        - `stream`: the stream it reads; without it, the whole journal.
        - `to`: read after this version, from the `beginning`, from `now`, or after a cursor.
        """
        return consuming.seek(tx, name, stream, to)

    @verb
    def forget(self, tx: Tx, name: str, stream: str | None = None) -> Consumer:
        """Forget a consumer and its place. Raises NotFound."""
        return consuming.forget(tx, name, stream)

    # -- folding -------------------------------------------------------------------------------------

    # The second: an empty `{}` or `[]` says nothing of its own type, the function does.
    @overload
    def fold(
        self,
        stream: str,
        function: Callable[[S, Event], S],
        start: S,
        *,
        name: str | None = ...,
        at: Moment = ...,
        at_us: int | None = ...,
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
        at_us: int | None = ...,
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
        at_us: int | None = None,
        upcasts: Upcasts | None = None,
        returns: Any = None,
        snapshot_every: int = folding.SNAPSHOT_EVERY,
    ) -> Folded[Any]:
        """The state that a pure function makes of a stream, now or at a moment.

        `at` is a version, a time with its zone, or a session (object, key or id): as that session left it.
        With a `name` snapshots are kept, and only what came after the newest is read; a function that
        means something else needs another name. `upcasts` makes events of today of old ones.
        `returns` is the type of a state that is more than JSON: a dataclass, a pydantic model.
        """
        refused_inside(self.tx, "events.fold")
        how = folding.recipe(function, start, name=name, returns=returns, upcasts=upcasts, every=snapshot_every)
        return folding.fold(self.store, stream_name(stream), how, _moment(at, at_us))

    # The second: an empty `{}` or `[]` says nothing of its own type, the function does.
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
        """What changed between two moments: `between=("session-3", "session-5")`, versions, or times."""
        refused_inside(self.tx, "events.diff")
        first, second = between
        how = folding.recipe(function, start, name=name, returns=returns, upcasts=upcasts, every=folding.SNAPSHOT_EVERY)
        stream = stream_name(stream)
        before, after = (folding.fold(self.store, stream, how, moment) for moment in (first, second))
        changes = folding.changes(before.state, after.state)
        truncated = len(changes) > folding.CHANGES_MAX
        return Difference(before, after, changes[: folding.CHANGES_MAX], truncated)

    @verb
    def delete_snapshots(self, tx: Tx, fold: str | None = None, stream: str | None = None) -> int:
        """Delete what folds have kept, all of this scope or some; how many there were. Nothing else is lost."""
        crash.point("event.before_snapshot")
        count = folding.delete(tx, fold, stream)
        if count:
            journal.append(tx, "snapshot.deleted", f"snapshot:{fold or 'all'}", summary=f"{count} snapshots")
        return count


def _moment(at: Moment, at_us: int | None) -> Moment:
    if at_us is None:
        return at
    if at is not None:
        raise InvalidInput("at which moment?", "one of at= and at_us=")
    checked_us(at_us, "at_us")
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
    except OverflowError:
        raise InvalidInput(f"at_us is {at_us}, which is no moment") from None


def _place(tx: Tx, stream: str | None, after: int | str | None) -> str:
    if stream is not None:
        version = reading.last_version(tx, stream) if after is None else reading.version_in(str(after))
        return f"v:{version}"
    if after is None:
        return journal.latest(tx)
    if isinstance(after, int):
        raise InvalidInput("a version is one of a stream", "name the stream, or give a cursor of the journal")
    journal.following(tx, after, 1)  # refuses what is no cursor
    return after
