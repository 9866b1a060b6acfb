"""`Opening`: one opening of a session, with its fencing token and its counts of repeated calls.

A session outlives processes. An opening lasts while one process, or one command of an actor, works on the session.
Steps, effects and the end of a session compare its fencing token. So a process that was paused is refused when it wakes
up and another process has taken the session over.
"""

from __future__ import annotations

import os
import threading

from standfast.config.scope import Keyspace, Label
from standfast.core import leases, repositories
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Store
from standfast.errors import LeaseLost, NoSession, NotFound, StandfastError, StorageError

SQL = load(__name__)
LINEAGE_MAX = 256
Lineage = tuple[tuple[str, int], ...]
"""The ancestors of a fork, the nearest first, each with the seq of the last journal row before its cut."""


class Opening:
    """One opening of a session. Its steps, effects and decisions share it."""

    def __init__(
        self,
        store: Store,
        *,
        session_id: str,
        session_key: str,
        node_id: str,
        fence: int,
        agent: str | None = None,
        lineage: Lineage = (),
        scope: str | None = None,
        label: Label | None = None,
    ) -> None:
        self.store = store
        self.session_id = session_id
        self.session_key = session_key
        self.scope = store.caller.scope if scope is None else scope
        self.label = store.caller.label if label is None else label
        """The repository of the session, also if a program in another repository opened it by its id."""
        self.node_id = node_id
        self.fence = fence
        self.agent = agent
        self.lineage = lineage
        self.first = False
        """Whether this opening created the session, so that nothing was recorded in it before."""
        self.holder = store.caller.holder
        self._keyspace: Keyspace | None = None
        self._pid = os.getpid()
        self._root = self  # shared by the copies for sub-agents
        self._ended = False
        self._mutex = threading.Lock()
        self._counts: dict[tuple[str, str], int] = {}
        self.stops: dict[str, tuple[str, str]] = {}
        """The calls that were stopped in this opening: the effect's id, with the code and the message of the error."""

    def keyspace(self, tx: Tx) -> Keyspace:
        """The keyspace of the session's state and decisions: that of its repository, wherever the program runs."""
        if self._keyspace is None:
            self._keyspace = repositories.keyspace(tx, self.scope, self.label)
        return self._keyspace

    def number(self, kind: str, identity: str) -> int:
        """Count that this opening has reached `identity`, and return the count: 1, 2, 3 …"""
        with self._mutex:
            count = self._counts[kind, identity] = self._counts.get((kind, identity), 0) + 1
            return count

    def take_back(self, kind: str, identity: str) -> None:
        """Take back the last number from `number`, because nothing was recorded under it."""
        with self._mutex:
            self._counts[kind, identity] -= 1

    @property
    def elsewhere(self) -> bool:
        """Whether this is a forked child of the process that opened the session."""
        return self._pid != os.getpid()

    @property
    def ended(self) -> bool:
        """Whether its block was left."""
        return self._root._ended

    def end(self) -> None:
        """Mark the block as left. Every later call is refused."""
        self._root._ended = True

    def usable(self) -> None:
        """Raises StorageError in a forked child, which inherits no sessions, and NoSession after the block."""
        if self.elsewhere:
            raise StorageError(
                f"session {self.session_key!r} was opened by the parent process {self._pid}",
                "open it in this process: standfast.session(key)",
                code="forked",
            )
        if self.ended:
            raise NoSession(
                f"session {self.session_key!r} has ended, and this call came after its block",
                "wait for threads and tasks before the block ends",
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
        """None while this opening owns the session; else the refusal, which a body that has written returns."""
        row = tx.maybe(SQL.owner, session_id=self.session_id)
        if row is None:
            return NotFound(f"session {self.session_key!r} is gone", "standfast session list")
        if row["fence"] == self.fence and row["holder"] == self.holder:
            return None
        return lost(row, self.fence)


def lineage_of(tx: Tx, session_id: str) -> Lineage:
    """The ancestors of a session; empty unless it is a fork."""
    found: list[tuple[str, int]] = []
    row = tx.maybe(SQL.parent, id=session_id)
    while row is not None and row["parent_id"] is not None and len(found) < LINEAGE_MAX:
        # If this fork was cut before the parent's own cut, it sees less of the grandparent than the parent does.
        cut_seq = min(row["cut_seq"], found[-1][1]) if found else row["cut_seq"]
        found.append((row["parent_id"], cut_seq))
        row = tx.maybe(SQL.parent, id=row["parent_id"])
    return tuple(found)


def lost(row: Row, fence: int) -> LeaseLost:
    """The error if another process has taken the session over, or has ended it."""
    return leases.lost(f"session {row['key']!r}", row, fence)
