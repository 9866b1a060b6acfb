"""Events: append-only streams of the user's own events, stored in the journal.

An event is a row of the journal with a stream and a version: 1, 2, 3 … without a gap. An append locks the stream's row
until the commit. So versions become visible in order on both engines, and a version is a cursor that skips no event.
Events of different streams have no such order: for these, use the cursors of the journal (`core/journal.py`).

No function changes an event. A reader is a consumer with a name and a cursor (`consumers`), a function that computes a
state (`folds`), or an iterator that waits (`follow`).

    models      what callers see, and the rules for names and types
    append      one event or many, once per key, at an expected version
    queries     pages by stream, by time and of the whole journal; the version at a time
    follow      wait for the next event
    consumers   named cursors, which only a commit moves
    folds       states, snapshots, differences
    resource    `sf.events`: the methods
"""

from __future__ import annotations

from standfast.core.journal import Event
from standfast.record.events.follow import Following
from standfast.record.events.models import (
    Appended,
    Batch,
    Change,
    Consumer,
    Difference,
    Folded,
    Listed,
    Stream,
    upcasted,
)
from standfast.record.events.resource import Events

__all__ = [
    "Appended",
    "Batch",
    "Change",
    "Consumer",
    "Difference",
    "Event",
    "Events",
    "Folded",
    "Following",
    "Listed",
    "Stream",
    "upcasted",
]
