"""One opening of a session: what it may write, and how often it has done the same thing.

A session outlives processes; an opening is one process (or one actor's command) at work on it,
with the fence it got when it opened it. Steps, effects and the end of a session are guarded by
that fence: a process that was paused and taken over is refused when it wakes up.
"""

from __future__ import annotations

import os
import threading

from standfast.config.scope import Label
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Store
from standfast.errors import LeaseLost, NotFound, StandfastError, StorageError
from standfast.footings import leases, repositories

SQL = load(__name__)


class Opening:
    """Made when a session is opened; shared by its steps, effects and decisions."""

    def __init__(
        self,
        store: Store,
        *,
        session_id: str,
        session_key: str,
        node_id: str,
        fence: int,
        agent: str | None = None,
        lineage: tuple[tuple[str, int], ...] = (),
        scope: str | None = None,
        label: Label | None = None,
    ) -> None:
        self.store = store
        self.session_id = session_id
        self.session_key = session_key
        self.scope = store.caller.scope if scope is None else scope
        self.label = store.caller.label if label is None else label
        """The session's own, also if it was opened by its id from another repository."""
        self.node_id = node_id
        self.fence = fence
        self.agent = agent
        self.lineage = lineage
        """Of a fork: its ancestors, nearest first, each with the journal's last row before the cut."""
        self.first = False
        """The first opening of a new session: nothing was recorded in it before."""
        self.holder = store.caller.holder
        self._home: str | None = None
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._counts: dict[tuple[str, str], int] = {}
        self.stops: dict[str, tuple[str, str]] = {}
        """What stopped a call of this opening: the effect's id, the error's code and message."""

    def home(self, tx: Tx) -> str:
        """Where the session's state and decisions are kept: its own repository's, wherever its program runs."""
        if self._home is None:
            self._home = repositories.home(tx, self.scope, self.label)
        return self._home

    def number(self, kind: str, identity: str) -> int:
        """How often this opening has reached `identity`, this time included: 1, 2, 3 …"""
        with self._mutex:
            count = self._counts[kind, identity] = self._counts.get((kind, identity), 0) + 1
            return count

    def take_back(self, kind: str, identity: str) -> None:
        """The last `number` did not count after all: nothing was recorded for it."""
        with self._mutex:
            self._counts[kind, identity] -= 1

    @property
    def elsewhere(self) -> bool:
        """Whether this is a forked child of the process that opened the session."""
        return self._pid != os.getpid()

    def usable(self) -> None:
        """Refuse in a forked child: sessions and leases are not inherited."""
        if self.elsewhere:
            raise StorageError(
                f"session {self.session_key!r} was opened by the parent process {self._pid}",
                "open it in this process: sf.session(…)",
                code="forked",
            )

    def guarded(self) -> Row:
        """Parameters for a statement that writes only while this opening owns the session."""
        return {"session_id": self.session_id, "session_fence": self.fence}

    def check(self, tx: Tx) -> None:
        """Raises LeaseLost unless this opening owns the session. Call it before the body writes."""
        refusal = self.guard(tx)
        if refusal is not None:
            raise refusal

    def guard(self, tx: Tx) -> StandfastError | None:
        """None while this opening owns the session; otherwise the refusal, for a body that has written."""
        row = tx.maybe(SQL.owner, session_id=self.session_id)
        if row is None:
            return NotFound(f"session {self.session_key!r} is gone", "standfast session list")
        if row["fence"] == self.fence and row["holder"] == self.holder:
            return None
        return lost(row, self.fence)


def lost(row: Row, fence: int) -> LeaseLost:
    """The session is somebody else's by now, or was ended."""
    return leases.lost(f"session {row['key']!r}", row, fence)
