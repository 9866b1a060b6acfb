"""Events as callers see them, and the rules for their names and types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from standfast import serial
from standfast.core import keys
from standfast.core.checks import past_us
from standfast.core.journal import Event
from standfast.core.receipts import Receipt
from standfast.errors import InvalidInput
from standfast.models import Model

S = TypeVar("S")

STREAM_MAX = 200
TYPE_MAX = 200
KEY_MAX = 200
APPEND_MAX = 1000
"""The most events of one append_many: other writers of the stream wait for it."""
CHAIN_MAX = 32
"""The most upcasts of one event: more of them are circular."""

OURS: Final = frozenset(
    (
        *("agent", "application", "approval", "artifact", "backup", "budget", "checkpoint", "compaction"),
        *("consumer", "copy", "credit", "credit_entry", "daemon", "dead_letter", "decision", "effect", "erase"),
        *("event", "gate", "hold", "hook", "import", "item", "knowledge", "lease", "lock", "loop", "mail"),
        *("mail_attempt", "message", "meta", "node", "once", "person", "prompt", "prune", "run", "schema"),
        *("session", "snapshot", "state", "step", "store", "stream", "subagent", "task", "task_note", "thread"),
        *("tool", "tool_call", "transcript", "turn", "usage", "webhook", "webhook_event"),
    )
)
"""The first words of the event types that only standfast writes."""

Upcasts = Mapping[str, Callable[[serial.Json], tuple[str, serial.Json]]]
"""For each stored type, the function that returns the current type and data."""


class Appended(Model):
    """One appended event. `receipt` is None if the key was used before: then this is the first event."""

    stream: str
    version: int
    type: str
    time_us: int
    receipt: Receipt | None = None


class Stream(Model):
    """A stream and the version of its last event."""

    scope: str
    name: str
    version: int
    updated_us: int

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "name stream", "version", "updated_us last"


class Listed(Model):
    """A page of events. `next` is the cursor of the next page; None at the end."""

    events: list[Event]
    next: str | None


class Consumer(Model):
    """A reader with a name. For the whole journal `stream` is empty, and `version` has no meaning."""

    scope: str
    name: str
    stream: str
    cursor: str
    version: int
    updated_us: int
    behind: int | None = None
    """The number of events of its stream that it has not committed; None for the whole journal."""

    @property
    def reads(self) -> str:
        """The stream, or `--journal`, as `event consume` takes it."""
        return self.stream or "--journal"

    @property
    def stream_shown(self) -> str:
        """The stream, or `(journal)`, for people."""
        return self.stream or "(journal)"

    @property
    def place(self) -> tuple[str, str]:
        """The cursor of a list: pass it as `after=`."""
        return self.name, self.stream

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "name consumer", "stream_shown stream", "cursor at", "behind", "updated_us moved"


class Batch(Model):
    """Events that a consumer has not committed. A batch without events is false."""

    consumer: str
    stream: str
    events: list[Event]
    before: str
    """The cursor that was committed when this was read; empty if there was none."""
    cursor: str
    """The cursor after the commit. It may be past events that did not match."""
    places: list[str]
    """The cursor after each event, to commit a part."""

    def __bool__(self) -> bool:
        return bool(self.events)

    @property
    def moved(self) -> bool:
        """Whether a commit would move the cursor."""
        return self.cursor != self.before

    def upto(self, count: int) -> Batch:
        """A batch with the first `count` events, to commit them alone."""
        if not 0 < count <= len(self.events):
            raise InvalidInput(f"the batch has {len(self.events)} events, not {count}")
        return self.replace(events=self.events[:count], places=self.places[:count], cursor=self.places[count - 1])

    def rest(self, count: int) -> Batch:
        """The rest of the batch after `upto(count)` is committed."""
        return self.replace(events=self.events[count:], places=self.places[count:], before=self.places[count - 1])


class Folded(Model, Generic[S]):
    """A state, computed from the snapshot at version `snapshot` (0: none) and `read` events after it."""

    state: S
    stream: str
    version: int
    read: int
    snapshot: int


class Change(Model):
    """One difference between two states. `path` is a JSON pointer: /items/3/price."""

    path: str
    kind: str
    """added, removed or changed"""
    was: serial.Json
    now: serial.Json


class Difference(Model, Generic[S]):
    """The states of a stream at two times, and the differences between them."""

    before: Folded[S]
    after: Folded[S]
    changes: list[Change]
    truncated: bool = False


class Item(NamedTuple):
    """One event to append, checked."""

    type: str
    data: serial.Json
    summary: str | None
    occurred_us: int | None


_GIVEN = ("type", "data", "summary", "occurred")


# -- rules --------------------------------------------------------------------------------------------------


def stream_name(name: object) -> str:
    return keys.checked(name, "a stream", limit=STREAM_MAX)


def event_type(type: object) -> str:
    """Check an event's type. A type of standfast is refused, so that no program can fake its events."""
    text = keys.checked(type, "an event's type", limit=TYPE_MAX)
    if text.partition(".")[0] in OURS and "." in text:
        word = text.partition(".")[0]
        raise InvalidInput(
            f"{text!r} is a type that standfast itself writes: {word}.…",
            f"begin it with a word of your own: my_{text}",
            code="reserved_type",
        )
    return text


def item(given: object, now_us: int) -> Item:
    """An event as `append_many` takes it: a mapping, or a pair of type and data."""
    if isinstance(given, Item):
        return given
    if isinstance(given, tuple) and 1 <= len(given) <= 2:
        given = dict(zip(("type", "data"), given, strict=False))
    if not isinstance(given, Mapping) or "type" not in given:
        raise InvalidInput(
            f"{serial.clean(repr(given), 60)} is not an event", '("type", data), or {"type": …, "data": …}'
        )
    unknown = sorted(str(name) for name in set(given) - set(_GIVEN))
    if unknown:
        raise InvalidInput(f"an event has no {unknown[0]!r}", f"it may have: {', '.join(_GIVEN)}")
    occurred_us = past_us(given.get("occurred"), now_us, "occurred")
    return made(given["type"], given.get("data"), given.get("summary"), occurred_us)


def made(type: object, data: serial.Json, summary: object, occurred_us: int | None) -> Item:
    if summary is not None and not isinstance(summary, str):
        raise InvalidInput("summary is text")
    encoded = None if data is None else serial.encode(data, what="data")
    return Item(event_type(type), encoded, summary, occurred_us)


def checked_version(version: object, what: str) -> int | None:
    if version is None:
        return None
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version < 2**62:
        raise InvalidInput(f"{what} is a number, 0 or more", "0 means that the stream must have no event yet")
    return version


def checked_type(type: object) -> str | None:
    """A type to filter by, or its first words."""
    return None if type is None else keys.checked(type, "an event's type", limit=TYPE_MAX)


def upcasted(event: Event, upcasts: Upcasts | None) -> Event:
    """The event in its current type: upcasts are applied until the type has none."""
    for _ in range(CHAIN_MAX):
        step = upcasts.get(event.type) if upcasts else None
        if step is None:
            return event
        found: Any = step(event.data)
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], str)):
            raise InvalidInput(f"the upcast of {event.type!r} returns a pair: the new type and its data")
        event = event.replace(type=found[0], data=found[1])
    raise InvalidInput(f"the upcasts of {event.type!r} are circular", "each step leads to a newer type")
