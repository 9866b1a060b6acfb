"""Checkpoints copy the pages of the WAL into the database, and truncate a WAL that has grown.

The writer thread checkpoints each time the WAL has grown by CHECKPOINT_FRAMES. SQLite's own automatic checkpoint is
off: it runs inside COMMIT, and would write into a file that was overwritten since the last identity check.

While a reader pins the WAL, SQLite cannot begin the WAL again and it grows. Past LOG_MAX_BYTES a thread truncates it,
off the hot path. The daemon truncates it past LOG_IDLE_BYTES, while there are few writes.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import apsw

from standfast.db.contract import DEADLINE_S
from standfast.db.sqlite import migrate, readers
from standfast.db.sqlite.lock import FileLock
from standfast.db.sqlite.open_store import OpenStore
from standfast.errors import StandfastError

CHECKPOINT_FRAMES = 1000
LOG_MAX_BYTES = 64 * 1024 * 1024
LOG_IDLE_BYTES = 8 * 1024 * 1024
"""Twice the size at which the WAL usually stays."""
CARE_WAIT_S = 1.0
_CHECKPOINT = f"PRAGMA shrink_memory; PRAGMA application_id={migrate.APPLICATION_ID}; PRAGMA wal_checkpoint"
_PASSIVE, _TRUNCATE = f"{_CHECKPOINT}(PASSIVE)", f"{_CHECKPOINT}(TRUNCATE)"
"""Each checkpoint must leave a new change counter. So a commit that writes page 1 comes first. SQLite increments the
counter of the cached page 1, so the cache is emptied before."""


class Checkpoints:
    def __init__(self, store: OpenStore, readers: readers.Readers) -> None:
        self._store = store
        self._readers = readers
        self._frames = store.files.frames()
        """Frames in the WAL after our last commit."""
        self._checkpointed = 0
        """Frames in the WAL at our last checkpoint."""
        self._truncating = False
        store.connection.set_wal_hook(self._count_frames)

    def _count_frames(self, connection: apsw.Connection, database: str, frames: int) -> int:
        """SQLite calls it after each commit of the writer thread."""
        self._frames = frames
        return apsw.SQLITE_OK

    def run_if_due(self) -> None:
        """In the writer thread, between two transactions, under the file lock."""
        if self._frames < self._checkpointed:  # the WAL was restarted
            self._checkpointed = 0
        if self._frames - self._checkpointed >= CHECKPOINT_FRAMES:
            self._run(self._store.connection, _PASSIVE)
            self._checkpointed = self._frames

    def _run(self, connection: apsw.Connection, text: str) -> None:
        """Check the identity first.

        Otherwise the pages of our WAL would give the file of another store a valid header.
        """
        self._store.refuse_in_child()
        with suppress(apsw.Error, OSError):  # like SQLite's own passive checkpoint, this leaves the frames in the WAL
            self._store.files.check()
            connection.execute(text).fetchall()
            self._store.files.note_checkpoint()

    def truncate_idle(self) -> None:
        """Truncate a WAL that has grown, while there are few writes."""
        if self._outgrown(LOG_IDLE_BYTES):
            self._truncating = True
            self._truncate(CARE_WAIT_S)

    def truncate_large(self) -> None:
        """Truncate a WAL past its limit in a thread of its own: commits continue meanwhile."""
        if self._outgrown(LOG_MAX_BYTES):
            self._truncating = True
            threading.Thread(target=self._truncate, args=(DEADLINE_S,), name="standfast-care", daemon=True).start()

    def _outgrown(self, limit_bytes: int) -> bool:
        """Whether the WAL is too large, and no thread truncates it yet."""
        try:
            return not self._truncating and self._store.files.size_bytes() > limit_bytes
        except OSError:
            return False  # the commit is durable already; the next write reports a failing disk

    def _truncate(self, wait_s: float) -> None:
        try:
            loan = self._readers.lend()
        except readers.Closed:
            return
        try:
            connection = self._store.connect()
            # Make a passive checkpoint first. It blocks no writer, and leaves little work for the time under the lock.
            self._store.files.check()
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            lock = FileLock(self._store.path + ".lock")
            try:
                lock.acquire(wait_s)
                self._run(connection, _TRUNCATE)
            finally:
                lock.close()
            connection.close()
        except (StandfastError, apsw.Error, OSError):
            pass  # The next round tries again; doctor reports a WAL that stays large.
        finally:
            self._truncating = False
            self._readers.give_back(loan)
