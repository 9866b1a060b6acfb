"""The SQLite engine: how a write reaches the disk.

    callers ──▶ writer thread ──▶ file lock ──▶ BEGIN IMMEDIATE … COMMIT ──▶ unlock
                                                                               │
                                     answer ◀── identity check ◀── fsync ◀─────┘

One writer thread per engine (`writer.py`) runs the callers' bodies. All bodies that wait when the thread has the
lock between processes share one transaction and one fsync. The thread releases that lock before the fsync, so
other processes commit meanwhile. A WAL is valid up to its first gap, so one fsync covers everything before it.

A batch runs without savepoints first. If a body fails, the batch is rolled back and runs again with a savepoint
around each body: the failing one fails alone.

An engine never guesses: after a failed fsync, a replaced file or a damaged page it refuses further work,
and the store opens a new one. Before a fork it closes, because SQLite's account of its locks is wrong in the child.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import apsw

from standfast import crash, log, modules
from standfast.db.contract import (
    DEADLINE_S,
    Caller,
    Done,
    Engine,
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
from standfast.db.moved import moved_away
from standfast.db.sql import statement
from standfast.db.sqlite import forks, library, location, migrate, notify, readers
from standfast.db.sqlite.lock import FileLock, busy, cannot_open, holder
from standfast.db.sqlite.operations import Body, Call, Hold
from standfast.db.sqlite.tx import SqliteTx
from standfast.db.sqlite.wal import Files, Probe, Replaced
from standfast.db.sqlite.writer import Writer
from standfast.db.store_memory import refuse_lost, replaced
from standfast.errors import Busy, CommitUnknown, Corrupt, InvalidInput, SchemaTooNew, StandfastError, StorageError

T = TypeVar("T")

LOG_MAX_BYTES = 64 * 1024 * 1024
LOG_IDLE_BYTES = 8 * 1024 * 1024
"""Twice the size that SQLite reuses. `care` truncates a WAL that is larger."""
CARE_WAIT_S = 1.0
SLOW_BATCH_S = 0.05
"""After this time the rest of a batch waits for the next commit, so that no process holds the lock for long."""
REPLACED_S = 2.0
"""How long an open waits for a process that closes or reopens a store whose files were replaced."""
CHECKPOINT_FRAMES = 1000
"""The writer thread checkpoints each time the WAL has grown by so many frames. SQLite's own automatic checkpoint is
off: it runs inside COMMIT, and would write into a file that was overwritten since the last identity check."""
_CHECKPOINT = f"PRAGMA shrink_memory; PRAGMA application_id={migrate.APPLICATION_ID}; PRAGMA wal_checkpoint"
_PASSIVE, _TRUNCATE = f"{_CHECKPOINT}(PASSIVE)", f"{_CHECKPOINT}(TRUNCATE)"
"""A commit that writes page 1 first, so that each checkpoint leaves a new change counter. SQLite counts from the page
that it read last, so the page leaves the cache."""
_CARE_EVERY = 512
_get_ident = threading.get_ident
_VERSION = statement("SELECT user_version FROM pragma_user_version")
_PRAGMAS = """
PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0; PRAGMA journal_size_limit=67108864;
PRAGMA foreign_keys=ON; PRAGMA cache_size=-16384; PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0;
PRAGMA trusted_schema=OFF; PRAGMA secure_delete=ON
"""


class _Here(threading.local):
    """State of the current thread."""

    hold: Hold | None = None
    """Its open `with sf.transaction()` block."""


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
        library.check()
        self._on_migrate = on_migrate
        self._on_removed = on_removed
        self._saved_in: str | None = None
        """The copy that was saved after the files were removed."""
        self._on_create = on_create
        """Called before a store is created. Raises if none may be created here."""
        if location.is_empty(path):
            on_create()
        self.path = self.identity = location.prepare(path, allow_unsafe=allow_unsafe)
        self.dead: BaseException | None = None
        self._caller = caller
        self._schema = migrations[-1].version
        self.handles = 0
        self._on_idle = on_idle
        self._here = _Here()
        self._forks = forks.count()
        self._batches = 0
        self._slow = 0
        self._frames = self._checkpointed = 0
        """Frames in the WAL after our last commit, and at our last checkpoint."""
        self._caring = False
        self._opened = False
        with _opening(self.path):
            self.lock = FileLock(self.path + ".lock")
            try:
                self._open_under_lock(caller, migrations)
            except BaseException:
                self.lock.close()
                raise
        self._writer = Writer(self, self.lock)

    # -- opening and closing ------------------------------------------------------------------

    def _open_under_lock(self, caller: Caller, migrations: Sequence[Migration]) -> None:
        """A foreign program may be closing or recovering the file: wait for it, up to the deadline."""
        start = time.monotonic()
        while True:
            self.lock.acquire(start + DEADLINE_S - time.monotonic())
            try:
                return self._open(caller, migrations)
            except Replaced as error:
                if time.monotonic() > start + min(REPLACED_S, DEADLINE_S):
                    raise error.refusal() from None
            except (*library.RETRYABLE, BlockingIOError):
                if time.monotonic() > start + DEADLINE_S:
                    raise
            finally:
                self.lock.release()
            library.pause(0.05)

    def _open(self, caller: Caller, migrations: Sequence[Migration]) -> None:
        """The caller holds the file lock. Our own descriptors open before SQLite's and close after them."""
        location.complete_restore(self.path)
        empty = location.is_empty(self.path)
        if empty:
            self._on_create()
        probe = Probe(self.path, create=empty)
        connection = files = None
        try:
            probe.refuse_foreign_log(self.lock)
            self._heal()  # before anything is written
            self.connection = connection = self._connect()
            self.cursor = connection.cursor()
            connection.set_wal_hook(self._count_frames)
            self._fenced_at = -1
            # Asked before anything is changed: another program's file stays as it is.
            migrate.refuse_foreign(connection, migrate.version(connection))
            if not empty and migrate.version(connection) == 0:
                self._on_create()
            mode = connection.execute("PRAGMA journal_mode=WAL").get
            if mode != "wal":
                raise StorageError(f"{self.path} cannot use a write-ahead log (it answers {mode})", "standfast doctor")
            found, latest = migrate.version(connection), migrations[-1].version
            if 0 < found < latest:
                self._on_migrate(migrate.identity(connection)[0], found, latest)
            migrate.migrate(connection, caller, migrations)
            # Opens the WAL and its index.
            self.store_id, self.epoch, _, self.copy_of, self.moved = migrate.identity(connection)
            self._files = files = Files(probe, self.lock)
            self._frames = files.frames()
            self._heal()  # the kernel reports a failed fsync only to descriptors that were open then
            self._bell = notify.Bell(self.path + ".bell")
        except BaseException:
            if connection is not None:
                connection.close()
            (files or probe).close()
            raise
        self._readers = readers.Readers(self._connect)
        self._opened = True

    def _heal(self) -> None:
        """An fsync failed in some process: the WAL may not be on disk, although the kernel has marked its pages clean.
        So rewrite the WAL byte for byte: its pages are dirty again, and the next fsync really writes them. A
        checkpoint does not help: no page of the WAL may reach the database before the whole WAL is on disk.
        """
        healing = self._wound + ".healing"
        with suppress(FileNotFoundError):
            os.replace(self._wound, healing)  # a sync that fails after this line leaves a new mark
        if not os.path.exists(healing):
            return
        with suppress(FileNotFoundError):
            fd = os.open(self.path + "-wal", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                at = 0
                while part := os.pread(fd, 1 << 20, at):
                    at += os.pwrite(fd, part, at)
                os.fdatasync(fd)
            finally:
                os.close(fd)
        os.unlink(healing)

    @property
    def _wound(self) -> str:
        """The mark that a failed fsync leaves for the next opener."""
        return self.path + ".unsynced"

    def _connect(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_NOFOLLOW
        connection = apsw.Connection(self.path, flags=flags, statementcachesize=256)
        connection.set_busy_timeout(200)  # foreign programs only; ours wait at the file lock
        migrate.define_guard(connection)
        connection.execute(_PRAGMAS).fetchall()
        return connection

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
        if self._is_closed() or self._forks != forks.count():
            return True
        self._refuse_inside()
        try:
            self._writer.run(Call(lambda: self._close(timeout_s, why)), timeout_s)
        except Busy:
            return False
        except BaseException:
            if not self._is_closed():
                raise
        if not self._is_closed():
            return False
        self._writer.join()
        return True

    def _is_closed(self) -> bool:
        """Asked again after each wait: the writer thread closes."""
        return not self._opened

    def close_later(self) -> None:
        """No handle is left: refuse further work now, and close when the writer thread has time."""
        self.dead = self.dead or _closed()
        with suppress(StandfastError):
            self._writer.put(Call(lambda: self._close(DEADLINE_S, None)))

    def _close(self, timeout_s: float, why: BaseException | None) -> bool:
        """In the writer thread."""
        if not self._opened:
            return True
        before = self.dead
        self.dead = self.dead or why or _closed()  # set first, so that a new reader gets the reason
        if not self._readers.close(timeout_s):
            self.dead = before
            return False
        self._rescue()
        try:
            # The next opener reads the WAL again. A WAL that was replaced under us must not reach the database.
            self.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self.connection.close()
        finally:
            self._files.close()
            self._bell.close()
            self.lock.close()
            self._opened = False
            self._writer.stop()
        return True

    # -- writing ------------------------------------------------------------------------------

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
    def changes(self) -> int:  # type: ignore[override]
        return self._files.changes

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

    # -- in the writer thread ---------------------------------------------------------------------

    def commit(self, batch: list[Body]) -> None:
        """Commit the batch, make it durable, answer. The thread holds the file lock."""
        try:
            served = self._transact(batch)
        finally:
            self.lock.release()
        if not served:  # a foreign program holds the database lock; the batch is back in the queue
            log.info("retry: another program has locked the database")
            library.pause(0.05)
            return
        committed = [body for body in served if body.error is None]
        if committed:
            self._batches += 1
            durable = any(body.durable for body in committed)
            error = self._confirm(durable)
            if error is None and durable:
                self.newest = next((body.newest for body in reversed(committed) if body.newest), self.newest)
            elif error is not None:
                _fail(committed, error)
        if len(committed) < len(served):
            self._explain(served)
        for body in served:
            body.answer()
        if committed:
            self._bell.ring()
            if self._batches % _CARE_EVERY == 0:
                self._care()
        self._close_after_alarm()

    def _explain(self, served: list[Body]) -> None:
        """A body that reads pages of another store may fail in any way. Its caller gets the identity alarm instead."""
        with suppress(OSError):
            try:
                self._files.check()
            except CommitUnknown as error:
                self.dead = self._rescued(error)
                for body in served:
                    body.error = error

    def _transact(self, batch: list[Body]) -> list[Body]:
        """Returns the bodies that have an outcome; the others are back in the deque."""
        if self.dead is not None:
            return _fail(batch, self.dead)
        try:
            crash.point("commit.before_begin")
            self._files.check_index()
            self._checkpoint_if_due()
            return self._run(batch)
        except library.RETRYABLE:
            self.rollback()
            self._writer.put_back(batch)
            return []
        except BaseException as error:  # noqa: BLE001  # every caller of the batch gets an answer
            ours = self.translated(error)
            self.rollback()
            return _fail(batch, ours)

    def _run(self, batch: list[Body]) -> list[Body]:
        self.begin()
        started = time.monotonic() if len(batch) > 1 else 0.0
        for served, body in enumerate(batch, 1):
            try:
                body.run(self.cursor)
            except library.RETRYABLE:
                if len(batch) == 1:
                    raise
                self.rollback()
                return self._run_apart(batch)
            except BaseException as error:  # noqa: BLE001  # a body may raise anything; it belongs to its caller
                self.rollback()
                if len(batch) == 1:
                    return _fail(batch, self.translated(error))
                return self._run_apart(batch)
            if served < len(batch) and time.monotonic() - started > SLOW_BATCH_S:
                self._slow += 1
                self._writer.put_back(batch[served:])
                del batch[served:]
                break
        self.finish()
        return batch

    def _run_apart(self, batch: list[Body]) -> list[Body]:
        """One of them fails: a savepoint around each, so that it fails alone."""
        self.begin()
        again: list[Body] = []
        for body in batch:
            self.connection.execute("SAVEPOINT op")
            try:
                body.run(self.cursor)
                self.connection.execute("RELEASE op")
            except BaseException as error:
                if not self.connection.in_transaction:  # a full disk ends the whole transaction
                    raise
                self.connection.execute("ROLLBACK TO op; RELEASE op").fetchall()
                if isinstance(error, library.RETRYABLE):
                    again.append(body)
                else:
                    body.error = self.translated(error)
        self.finish()
        self._writer.put_back(again)
        return [body for body in batch if body not in again]

    def _checkpoint_if_due(self) -> None:
        """Called between two transactions, under the file lock."""
        if self._frames < self._checkpointed:  # the WAL was restarted
            self._checkpointed = 0
        if self._frames - self._checkpointed >= CHECKPOINT_FRAMES:
            self._checkpoint(self.connection, _PASSIVE)
            self._checkpointed = self._frames

    def _count_frames(self, connection: apsw.Connection, database: str, frames: int) -> int:
        """SQLite calls it after each commit of the writer thread."""
        self._frames = frames
        return apsw.SQLITE_OK

    def _checkpoint(self, connection: apsw.Connection, text: str) -> None:
        """The identity check comes first: the WAL's pages would make a valid header of another store's file."""
        self._own()
        with suppress(apsw.Error, OSError):  # like SQLite's own passive checkpoint, this leaves the frames in the WAL
            self._files.check()
            connection.execute(text).fetchall()
            self._files.note_checkpoint()

    def begin(self) -> None:
        self._own()
        self.cursor.execute("BEGIN IMMEDIATE")
        crash.point("commit.after_begin")
        if self.connection.data_version() != self._fenced_at:
            self._check_fence()

    def finish(self) -> None:
        self._own()
        crash.point("commit.before_commit")
        self.cursor.execute("COMMIT")
        self._fenced_at = self.connection.data_version()

    def rollback(self) -> None:
        self._own()
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except apsw.Error as error:
            self.dead = self.translated(error)

    def _own(self) -> None:
        """A body that forked returns in the child, too: nothing of the parent's transaction is touched there."""
        if self._forks != forks.count():
            raise forks.refused()

    def _check_fence(self) -> None:
        """Another connection committed since our last commit: check that it is still our store and that we may
        write.
        """
        store_id, epoch, min_writer, _, moved = migrate.identity(self.connection)
        mine, there = (self.store_id, self.epoch), (store_id, epoch)
        try:
            if there != mine:
                raise replaced(self.path, mine, there)
            if moved and not self.moved:
                raise moved_away(moved)
            refuse_lost(SqliteTx(self.cursor, self._caller), self.path, self.newest)
        except StorageError as error:
            self.dead = error
            raise
        if min_writer > self._schema:
            raise SchemaTooNew(
                f"the store was upgraded to schema {migrate.version(self.connection)} while this process ran with "
                f"schema {self._schema}",
                modules.UPGRADE,
            )

    def lend(self, hold: Hold) -> None:
        """Lend the connection to a caller, take it back, then commit or roll back. The thread holds the file lock."""
        committed = put_back = False
        try:
            if self._begin_hold(hold):
                hold.lend(self.connection.cursor())
                hold.take_back()
                committed = self._end_hold(hold)
            else:
                put_back = hold.error is None
        finally:
            self.lock.release()
        if put_back:
            self._writer.put_back([hold])
            library.pause(0.05)
            return
        if committed:
            self._batches += 1
            hold.error = self._confirm(True)
            if hold.error is None:
                self.newest = hold.result.newest or self.newest
        hold.answer()
        if committed:
            self._bell.ring()
        self._close_after_alarm()

    def _close_after_alarm(self) -> None:
        """Processes that found the files replaced cannot open the store before this one closes them."""
        if isinstance(self.dead, CommitUnknown):
            self._close(0.0, None)

    def _begin_hold(self, hold: Hold) -> bool:
        try:
            if self.dead is not None:
                raise self.dead
            self._files.check_index()
            self._checkpoint_if_due()
            self.begin()
        except library.RETRYABLE:
            self.rollback()
            return False
        except BaseException as error:  # noqa: BLE001  # it belongs to the caller
            hold.error = self.translated(error)
            self.rollback()
            return False
        return True

    def _end_hold(self, hold: Hold) -> bool:
        try:
            if hold.commits:
                self.finish()
                return True
        except BaseException as error:  # noqa: BLE001  # it belongs to the caller
            hold.error = self.translated(error)
        self.rollback()
        return False

    def failed(self, error: BaseException) -> None:
        """The writer thread ended because of a defect. Refuse every caller; the store then opens a new engine."""
        lost = CommitUnknown(f"the writer thread failed: {error!r}", "look the write up by its key before repeating it")
        lost.__cause__ = error
        self.dead = self.dead or lost

    def translated(self, error: BaseException) -> BaseException:
        if isinstance(error, CommitUnknown):  # the WAL index has lost its name: nothing was written
            self.dead = self.dead or self._rescued(error)
        if not isinstance(error, apsw.Error):
            return error
        ours = library.translated(error, self.path)
        ours.__cause__ = error
        # If SQLite cannot open a file for writing, even once (too many open files), it opens the file for reading and
        # keeps it read-only. The next call opens all of them again.
        if isinstance(ours, Corrupt) or isinstance(error, (apsw.IOError, apsw.ReadOnlyError)):
            self.dead = ours
        return ours

    def _confirm(self, durable: bool) -> BaseException | None:
        """Make durable what was committed; an error means that its outcome is unknown."""
        try:
            crash.point("commit.after_commit")
            error = self._make_durable(durable)
            crash.point("commit.after_sync")
        except BaseException as raised:  # noqa: BLE001  # a crash point of a test raises here
            return raised
        return error

    def _make_durable(self, durable: bool) -> BaseException | None:
        """The kernel reports a failed write to one fsync only, so after a failure this engine acknowledges nothing."""
        if isinstance(self.dead, CommitUnknown):
            return self.dead
        try:
            self._files.settle(durable=durable)
            return None
        except CommitUnknown as error:
            self.dead = self._rescued(error)
        except OSError as error:
            with suppress(OSError):
                os.close(os.open(self._wound, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            self.dead = _sync_failed(self.path, error)
        return self.dead

    def _rescued(self, alarm: CommitUnknown) -> CommitUnknown:
        """The alarm of removed files names the copy that was saved from them."""
        copy = self._rescue()
        if copy:
            alarm.hint = f"the store is saved in the copy {copy}: standfast restore --here"
        return alarm

    def _rescue(self) -> str:
        """The files have lost their names and disappear when the last process closes them: save them in a copy.

        In the writer thread, before any caller is answered, and once. Returns the id of the copy, if one was taken.
        """
        if self._saved_in is None and not self.copy_of and self._files.removed():
            from standfast.db.sqlite import copying

            self._saved_in = ""
            try:
                self._saved_in = self._on_removed(self.store_id, lambda path: copying.save(self.connection, path))
            except (StandfastError, OSError) as error:
                log.warning(f"the files of the store at {self.path} were removed, and no copy could be saved: {error}")
        return self._saved_in or ""

    # -- a transaction that a caller holds, and fsync on demand -----------------------------------------

    @contextmanager
    def transaction(self, caller: Caller) -> Iterator[Tx]:
        self._usable()
        hold = Hold(caller, self.translated)
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
            return self._sync()
        call, hold = Call(self._sync), self._here.hold
        if hold is None or hold.over:
            return self._writer.run(call)
        hold.refuse_in_child()
        return hold.ask(call)  # this caller holds the transaction that the writer thread waits for

    def _sync(self) -> None:
        """In the writer thread."""
        error = self._make_durable(True)
        if error is not None:
            raise error

    # -- reading ------------------------------------------------------------------------------

    def _usable_for_reading(self) -> None:
        if self.dead is not None:
            raise self.dead
        if self._forks != forks.count():  # the child has no writer thread
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
                raise self.dead or _closed() from None
            except apsw.ReadOnlyError as error:  # a read body tried to write: the store itself is sound
                raise library.translated(error, self.path) from error
            except apsw.Error as error:
                raise self.translated(error) from error

    def rows(self, text: str, params: dict[str, object] | None = None) -> Iterator[Row]:
        self._usable_for_reading()
        try:
            loan = self._readers.lend()
        except readers.Closed:
            raise self.dead or _closed() from None
        try:
            connection = self._connect()
        except BaseException:
            self._readers.give_back(loan)
            raise
        return readers.stream(connection, text, params, lambda: self._readers.give_back(loan))

    def watch(self) -> Watch:
        return notify.watch(self._bell.path)

    # -- facts and care -------------------------------------------------------------------------

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
            "wal_bytes": self._files.size_bytes(),
            "lock_holder_pid": holder(self.path + ".lock"),
            "batches": self._batches,
            "slow_batches": self._slow,
        }

    def care(self) -> None:
        """Truncate a WAL that has grown, while there are few writes."""
        if self._outgrown(LOG_IDLE_BYTES):
            self._caring = True
            self._truncate_log(wait_s=CARE_WAIT_S)

    def _care(self) -> None:
        """A reader pinned the WAL, so it outgrew its limit: truncate it, off the hot path."""
        if self._outgrown(LOG_MAX_BYTES):
            self._caring = True
            threading.Thread(target=self._truncate_log, name="standfast-care", daemon=True).start()

    def _outgrown(self, bound_bytes: int) -> bool:
        """Whether the WAL is too large, and no thread truncates it yet."""
        try:
            return not self._caring and self._files.size_bytes() > bound_bytes
        except OSError:
            return False  # the commit is durable already; the next write reports a failing disk

    def _truncate_log(self, wait_s: float = DEADLINE_S) -> None:
        try:
            loan = self._readers.lend()
        except readers.Closed:
            return
        try:
            connection = self._connect()
            # Passive first: it blocks no writer and leaves little to do under the lock.
            self._files.check()
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            lock = FileLock(self.path + ".lock")
            try:
                lock.acquire(wait_s)
                self._checkpoint(connection, _TRUNCATE)
            finally:
                lock.close()
            connection.close()
        except (StandfastError, apsw.Error, OSError):
            pass  # The next round tries again; doctor reports a WAL that stays large.
        finally:
            self._caring = False
            self._readers.give_back(loan)


def _fail(batch: list[Body], error: BaseException) -> list[Body]:
    for body in batch:
        body.error = body.error or error
    return batch


def _closed() -> InvalidInput:
    return InvalidInput("this store is closed", "open it again: standfast.open()")


def _sync_failed(path: str, error: OSError) -> CommitUnknown:
    return CommitUnknown(
        f"the disk did not confirm a write to {path}: {error.strerror}",
        "look the write up by its key before repeating it; then: standfast doctor",
        code="sync_failed",
    )


@contextmanager
def _opening(path: str) -> Iterator[None]:
    """Translate the errors of opening a file."""
    end = time.monotonic() + DEADLINE_S
    try:
        yield
    except apsw.Error as error:
        raise library.translated(error, path) from error
    except BlockingIOError as error:
        raise busy(path + ".lock", end - time.monotonic()) from error
    except OSError as error:
        raise cannot_open(path, error) from error
