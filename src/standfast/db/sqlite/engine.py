"""The SQLite engine: how a write reaches the disk.

    callers ──▶ writer thread ──▶ file lock ──▶ BEGIN IMMEDIATE … COMMIT ──▶ unlock
                                                                               │
                                     answer ◀── identity check ◀── fsync ◀─────┘

One writer thread per engine runs the callers' bodies. All bodies that wait when the thread has the
lock between processes share one transaction and one fsync. The thread releases that lock before the fsync, so
other processes commit meanwhile. A WAL is valid up to its first gap, so one fsync covers everything before it.

    open_store     opens, migrates and closes the files
    writer         the queue of operations and the thread that serves them
    operations     a body, a call, or a transaction that a caller holds
    group_commit   from BEGIN to the answer
    wal            fsync, locks of our own and the identity check (file_headers reads what it compares)
    checkpoints    from the WAL into the database
    readers        connections for reads

After a failed fsync, a replaced file or a damaged page, an engine refuses further work, and the store opens a new
engine. Before a fork it closes, because SQLite's account of its locks is wrong in the child.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import apsw

from standfast.db.contract import (
    DEADLINE_S,
    Caller,
    Done,
    Engine,
    Numbered,
    OnMigrate,
    OnRemoved,
    Row,
    Tx,
    Watch,
    no_copy,
    no_rescue,
    refuse_copy,
)
from standfast.db.migrations import MIGRATIONS
from standfast.db.migrations.migration import Migration
from standfast.db.sql import statement
from standfast.db.sqlite import library, location, notify, readers
from standfast.db.sqlite.checkpoints import Checkpoints
from standfast.db.sqlite.group_commit import GroupCommit, closed
from standfast.db.sqlite.lock import busy, holder
from standfast.db.sqlite.open_store import OpenStore
from standfast.db.sqlite.operations import Body, Call, Hold
from standfast.errors import Busy, InvalidInput, StandfastError, StorageError

T = TypeVar("T")

_get_ident = threading.get_ident
_VERSION = statement("SELECT user_version FROM pragma_user_version")


class _Here(threading.local):
    """State of the current thread."""

    hold: Hold | None = None
    """The thread's open `with sf.transaction()` block."""


class SqliteEngine(Engine):
    name = "sqlite"

    def __init__(
        self,
        path: str,
        caller: Caller,
        *,
        migrations: Sequence[Migration] = MIGRATIONS,
        allow_unsafe: bool = False,
        on_idle: Callable[[SqliteEngine], object] = lambda engine: engine.close(),
        on_create: Callable[[], None] = lambda: None,
        on_migrate: OnMigrate = no_copy,
        on_removed: OnRemoved = no_rescue,
    ) -> None:
        """The engine calls `on_create` before it creates a store. `on_create` raises if no store may be created
        here."""
        library.check()
        if location.is_empty(path):
            on_create()
        self.path = self.identity = location.prepare(path, allow_unsafe=allow_unsafe)
        self._caller = caller
        self.handles = 0
        self._on_idle = on_idle
        self._here = _Here()
        self._store = store = OpenStore(self.path, caller, migrations, on_create=on_create, on_migrate=on_migrate)
        self.lock, self.connection = store.lock, store.connection
        self.store_id, self.epoch, self.copy_of, self.moved = store.store_id, store.epoch, store.copy_of, store.moved
        self._readers = readers.Readers(store.connect)
        self._checkpoints = Checkpoints(store, self._readers)
        self._commits = GroupCommit(
            store, self._readers, self._checkpoints, caller, schema=migrations[-1].version, on_removed=on_removed
        )
        self._writer = self._commits.writer

    @property
    def dead(self) -> BaseException | None:
        return self._commits.dead

    @dead.setter
    def dead(self, why: BaseException | None) -> None:
        self._commits.dead = why

    @property
    def newest(self) -> tuple[int, int, Numbered] | None:  # type: ignore[override]
        return self._commits.newest

    @property
    def changes(self) -> int:  # type: ignore[override]
        return self._store.files.changes

    # -- close --------------------------------------------------------------------------------

    def retain(self) -> None:
        self.handles += 1

    def release(self) -> None:
        self.handles -= 1
        if self.handles <= 0:
            self._on_idle(self)

    def close(self, timeout_s: float = 10.0, *, why: BaseException | None = None) -> bool:
        """Serve waiting callers, then close. False after `timeout_s` if a reader is still in use or the writer thread
        waits for the lock of another process. The engine then stays open.
        """
        if not self._store.is_open() or self._store.inherited:
            return True
        self._refuse_inside()
        try:
            self._writer.run(Call(lambda: self._commits.close(timeout_s, why)), timeout_s)
        except Busy:
            return False
        except BaseException:
            if self._store.is_open():
                raise
        if self._store.is_open():
            return False
        self._writer.join()
        return True

    def close_later(self) -> None:
        """Refuse further work now, and close when the writer thread is free. Called when the engine has no handles."""
        self.dead = self.dead or closed()
        with suppress(StandfastError):
            self._writer.put(Call(lambda: self._commits.close(DEADLINE_S, None)))

    # -- writes -------------------------------------------------------------------------------

    def write(self, body: Callable[[Tx], T], caller: Caller, *, durable: bool = True) -> T:
        self._usable()
        operation = Body(body, caller, durable=durable)
        self._writer.run(operation)
        result: T = operation.result
        if isinstance(result, StandfastError):
            raise result
        return result

    def submit(self, body: Callable[[Tx], T], caller: Caller, done: Done[T]) -> Callable[[], bool]:
        self._usable()
        operation = Body(body, caller, durable=True, done=done)
        self._writer.put(operation)
        return lambda: self._writer.withdraw(operation)

    def overdue(self) -> Busy:
        return busy(self.lock.path, DEADLINE_S)

    @property
    def inside(self) -> bool:
        """Whether this thread runs a body, or holds a transaction."""
        hold = self._here.hold
        return (hold is not None and not hold.over) or _get_ident() == self._writer.ident

    def _usable(self) -> None:
        self._usable_for_reading()
        refuse_copy(self)
        self._refuse_inside()

    def _refuse_inside(self) -> None:
        if self.inside:
            raise InvalidInput(
                "a transaction is open in this thread: a second one would wait for it for ever",
                "inside `with sf.transaction() as tx`, use tx's resources: tx.tasks.add(…)",
            )

    @contextmanager
    def transaction(self, caller: Caller) -> Iterator[Tx]:
        self._usable()
        hold = Hold(caller, self._commits.translated)
        try:
            self._writer.run(hold)
            self._here.hold = hold
            yield hold.result
            hold.refuse_in_child()
            hold.give_back(commit=True)
            self._writer.wait_end(hold)
        except BaseException:
            if not hold.inherited:
                hold.give_back(commit=False)
            raise
        finally:
            self._here.hold = None

    def sync(self) -> None:
        self._usable_for_reading()
        if _get_ident() == self._writer.ident:
            return self._commits.sync()
        call, hold = Call(self._commits.sync), self._here.hold
        if hold is None or hold.over:
            return self._writer.run(call)
        hold.refuse_in_child()
        return hold.ask(call)  # this caller holds the transaction that the writer thread waits for

    # -- reads --------------------------------------------------------------------------------

    def _usable_for_reading(self) -> None:
        if self.dead is not None:
            raise self.dead
        if self._store.inherited:  # the child has no writer thread
            raise StorageError("this connection belongs to the parent process", code="forked")

    def read(self, body: Callable[[Tx], T], caller: Caller) -> T:
        self._usable_for_reading()
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                return self._readers.read(body, caller)
            except library.RETRYABLE as error:
                if time.monotonic() > end:
                    raise library.translated(error, self.path) from error
                library.pause(0.02)
            except readers.Closed:
                raise self.dead or closed() from None
            except apsw.ReadOnlyError as error:  # a read body tried to write: the store itself is sound
                raise library.translated(error, self.path) from error
            except apsw.Error as error:
                raise self._commits.translated(error) from error

    def rows(self, text: str, params: dict[str, object] | None = None) -> Iterator[Row]:
        self._usable_for_reading()
        try:
            loan = self._readers.lend()
        except readers.Closed:
            raise self.dead or closed() from None
        try:
            connection = self._store.connect()
        except BaseException:
            self._readers.give_back(loan)
            raise
        return readers.stream(connection, text, params, lambda: self._readers.give_back(loan))

    def watch(self) -> Watch:
        return notify.watch(self._store.bell.path)

    # -- facts and maintenance ------------------------------------------------------------------

    def schema_version(self) -> int:
        return int(self.read(lambda tx: tx.one(_VERSION), self._caller)["user_version"])

    def facts(self) -> dict[str, object]:
        return {
            "engine": self.name,
            "path": self.path,
            "sqlite_version": apsw.sqlite_lib_version(),
            "apsw_version": apsw.apsw_version(),
            "file_system": location.file_system(os.path.dirname(self.path)),
            "size_bytes": os.stat(self.path).st_size,
            "wal_bytes": self._store.files.size_bytes(),
            "lock_holder_pid": holder(self.path + ".lock"),
            "batches": self._commits.batches,
            "slow_batches": self._commits.slow_batches,
        }

    def care(self) -> None:
        self._checkpoints.truncate_idle()
