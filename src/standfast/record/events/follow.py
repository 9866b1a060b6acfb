"""`Following`: an iterator that waits for the next event.

A notification wakes it, and it also polls, because a notification may be lost. It stores no cursor: use a consumer to
continue in another process.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from standfast import log
from standfast.core import journal
from standfast.core.checks import PAGE_MAX
from standfast.core.journal import Event
from standfast.db.contract import Tx
from standfast.db.store import Store
from standfast.record.events import queries
from standfast.record.followers import LOOK_AGAIN_S, Waiting

HELD_BACK_EVERY_S = 10.0
"""How often a waiting follower of the journal checks whether an open transaction keeps events from it."""
YOUNG_US = 1_000_000
"""A row younger than this may be visible before it is on disk."""


class Found(NamedTuple):
    """Events, each with the cursor after it, and the cursor after the last row that was read."""

    events: list[tuple[Event, str]]
    cursor: str
    more: bool
    young: bool


def look(tx: Tx, stream: str | None, type: str | None, cursor: str, limit: int) -> Found:
    """The events after a cursor: `v:<version>` of a stream, or a cursor of the journal. Empty: from the beginning."""
    if stream is not None:
        rows = queries.rows(tx, stream, after=int(cursor[2:] or 0), limit=limit)
        end = f"v:{rows[-1]['version']}" if rows else cursor
    else:
        rows = journal.following(tx, cursor or None, limit)
        end = journal.cursor_of(rows[-1]) if rows else cursor
    # Filtered rows are not decoded.
    wanted = [row for row in rows if row["scope"] == tx.caller.scope and fits(row["type"], type)]
    placed = [
        (journal.event(row), journal.cursor_of(row) if stream is None else f"v:{row['version']}") for row in wanted
    ]
    young = bool(wanted) and tx.now_us() - wanted[-1]["time_us"] < YOUNG_US
    return Found(placed, end, len(rows) >= limit, young)


def fits(found: str, wanted: str | None) -> bool:
    """Whether a type matches: `order` matches `order` and every `order.…`."""
    return wanted is None or found == wanted or found.startswith(wanted + ".")


def look_durably(store: Store, stream: str | None, type: str | None, cursor: str, limit: int) -> Found:
    """As `look`, but sync the rows to disk first, so that no caller acts on a row that a crash could remove."""
    found = store.read(lambda tx: look(tx, stream, type, cursor, limit))
    if found.young:
        store.sync()
    return found


class Following(Waiting[Event]):
    """Events as they come. It ends if none comes for `idle_s`."""

    def __init__(self, store: Store, stream: str | None, type: str | None, cursor: str, idle_s: float | None) -> None:
        self._store, self._stream, self._type = store, stream, type
        self.patience_s = idle_s
        self.on_held_back: Callable[[str], object] = log.warning
        """Called with a sentence if an open transaction keeps newer events from this reader."""
        self._held_back = ""
        self._asked_s = time.monotonic()
        self._cursor = cursor
        self._ready: deque[Event] = deque()
        self._watch = store.watch()

    def within(self, timeout_s: float | None) -> Event | None:
        end = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while not self._ready and self._watch is not None:
            found = look_durably(self._store, self._stream, self._type, self._cursor, PAGE_MAX)
            self._cursor = found.cursor
            self._ready.extend(event for event, _ in found.events)
            if self._ready or found.more:
                continue
            left_s = end - time.monotonic()
            if left_s <= 0:
                return None
            self._tell_held_back()
            self._watch.wait(min(LOOK_AGAIN_S, left_s))
        return self._ready.popleft() if self._ready else None

    def _tell_held_back(self) -> None:
        """Report each such transaction once. Only readers of the whole journal wait for other transactions."""
        now_s = time.monotonic()
        if self._stream is not None or now_s - self._asked_s < HELD_BACK_EVERY_S:
            return
        self._asked_s = now_s
        said = self._store.engine.held_back()
        who = said.partition(" has kept")[0]
        if who and who != self._held_back:
            self.on_held_back(said)
        self._held_back = who
