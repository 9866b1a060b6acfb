"""Events: what happened, in streams of the caller's own naming, on the journal.

An event is a row of the journal with a stream and a version: 1, 2, 3 … without a gap. Appends to one
stream take turns at its row in `stream`, and that row is held until the commit; so versions
become visible in their order on both engines, and a version is a cursor that skips nothing. Across
streams there is no such order: there the journal's own cursors serve (`core/journal.py`).

Nothing here changes an event. A reader has a name and a cursor (`consumers`), a function that
makes a state of them (`folds`), or waits for the next one (`follow`).

    models      what callers see, and the rules for names and types
    append      one event or many, once per key, at an expected version
    queries     pages by stream, by time, of the whole journal; moments
    follow      wait for what comes
    consumers   named places that are moved by commit, and only by commit
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
