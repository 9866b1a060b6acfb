"""Events: what happened, in streams of the caller's own naming, on the journal.

An event is a row of the journal with a stream and a version: 1, 2, 3 … without a gap. Appends to one
stream take turns at its row in `stream`, and that row is held until the commit; so versions
become visible in their order on both engines, and a version is a cursor that skips nothing. Across
streams there is no such order: there the journal's own cursors serve (`footings/journal.py`).

Nothing here changes an event. Whoever reads has a name and a place (`consuming`), a function that
makes a state of them (`folding`), or waits for the next one (`following`).

    nouns       what callers see, and the rules for names and types
    appending   one event or many, once per key, at an expected version
    reading     pages by stream, by time, of the whole journal; moments
    following   wait for what comes
    consuming   named places that are moved by commit, and only by commit
    folding     states, snapshots, differences
    room        `sf.events`: the verbs
"""

from __future__ import annotations

from standfast.footings.journal import Event
from standfast.record.events.following import Following
from standfast.record.events.nouns import (
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
from standfast.record.events.room import Events

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
