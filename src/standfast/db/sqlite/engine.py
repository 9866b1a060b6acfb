"""The SQLite engine: how a write reaches the disk.

    callers ──▶ queue ──▶ leader ──▶ file lock ──▶ BEGIN IMMEDIATE … COMMIT ──▶ unlock
                                                         │
                                    acknowledge ◀── sync the log ◀─┘ (the next leader is already at work)

The first caller to come leads: it takes the lock between processes and runs its own body and
those of everybody who queued meanwhile in one transaction. (If it had to wait for that lock, the thread
that waited runs them.) A lone caller finds the queue empty
and pays for nothing. The leader hands over before it syncs, so that commits and syncs overlap;
nobody is acknowledged before the sync that covers its commit has returned. A log is valid
up to its first gap, so one sync makes everything before it durable too.

A batch is tried without savepoints. If a body fails, the batch is rolled back and run again
with a savepoint around each body: the failing one fails alone.

An engine dies rather than guess: after a failed sync, a replaced log or a damaged file it
refuses further work, and the store opens a new one. Before a fork it closes, because the
library's own bookkeeping of locks does not survive in the child.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import apsw

from standfast import crash
from standfast.db.contract import (
    DEADLINE_S,
    Caller,
    Done,
    Engine,
    Row,
    Tx,
    Watch,
)
from standfast.db.migrations import MIGRATIONS
from standfast.db.migrations.migration import Migration
from standfast.db.sql import statement
from standfast.db.sqlite import bell, library, migrate, place, readers
from standfast.db.sqlite.guard import Log
from standfast.db.sqlite.held import Held
from standfast.db.sqlite.inbox import Inbox
from standfast.db.sqlite.lock import FileLock, busy, cannot_open, holder
from standfast.db.sqlite.queue import Entry, Op, Queue, ops
from standfast.db.sqlite.signals import HeldBack, Struck
from standfast.db.sqlite.tx import SqliteTx
from standfast.errors import CommitUnknown, Corrupt, InvalidInput, SchemaTooNew, StandfastError, StorageError

T = TypeVar("T")

LOG_MAX_BYTES = 64 * 1024 * 1024
LOG_IDLE_BYTES = 8 * 1024 * 1024
"""Twice what is reused anyway; more is given back by whoever takes care."""
CARE_WAIT_S = 1.0
SLOW_BATCH_S = 0.05
"""Past this, the rest of a batch waits for the next one: nobody holds the lock for long."""
_CARE_EVERY = 512
_get_ident = threading.get_ident
_VERSION = statement("SELECT user_version FROM pragma_user_version")
_PRAGMAS = """
PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=1000; PRAGMA journal_size_limit=67108864;
PRAGMA foreign_keys=ON; PRAGMA cache_size=-16384; PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0;
PRAGMA trusted_schema=OFF
"""


class _Inside(threading.local):
    """Where a thread is."""

    block = False
    """In a `with sf.transaction()` of its own."""


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
    ) -> None:
        library.check()
        self.path = self.identity = place.prepare(path, allow_unsafe=allow_unsafe)
        self.dead: BaseException | None = None
        self._caller = caller
        self._schema = migrations[-1].version
        self.handles = 0
        self._on_idle = on_idle
        self._mutex = threading.Lock()
        self.queue = Queue()
        self._syncing = threading.Lock()
        self._running = 0
        self._blocks = False
        self._inside = _Inside()
        self._batches = 0
        self._slow = 0
        self._inbox: Inbox | None = None
        self._caring = False
        self._opened = False
        with _opening(self.path):
            self.lock = FileLock(self.path + ".lock")
            try:
                self._open_under_lock(caller, migrations)
            except BaseException:
                self.lock.close()
                raise

    # -- opening and closing ------------------------------------------------------------------

    def _open_under_lock(self, caller: Caller, migrations: Sequence[Migration]) -> None:
        """A foreign program may be closing or recovering the file: wait for it, not for ever."""
        end = time.monotonic() + DEADLINE_S
        while True:
            self.lock.acquire(end - time.monotonic())
            try:
                return self._open(caller, migrations)
            except (*library.RETRYABLE, BlockingIOError):
                if time.monotonic() > end:
                    raise
            finally:
                self.lock.release()
            library.pause(0.05)

    def _open(self, caller: Caller, migrations: Sequence[Migration]) -> None:
        """The caller holds the file lock. The guard's descriptor comes first and goes last."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        guard_fd = os.open(self.path, flags, 0o600)
        connection = log = None
        try:
            self._heal()  # before anything is written
            self.connection = connection = self._connect()
            self.cursor = connection.cursor()
            self._fenced_at = -1
            # Asked before anything is changed: somebody else's file stays as it is.
            migrate.refuse_foreign(connection, migrate.version(connection))
            mode = connection.execute("PRAGMA journal_mode=WAL").get
            if mode != "wal":
                raise StorageError(f"{self.path} cannot use a write-ahead log (it answers {mode})", "standfast doctor")
            migrate.migrate(connection, caller, migrations)
            connection.execute("SELECT count(*) FROM meta").fetchall()  # opens the log and its index
            self._log = log = Log(self.path, guard_fd)
            self._heal()  # a sync that failed before we had the log open told us nothing; from here on it would
        except BaseException:
            if connection is not None:
                connection.close()
            if log is not None:
                log.close()
            else:
                os.close(guard_fd)
            raise
        self._bell = bell.Bell(self.path + ".bell")
        self._readers = readers.Readers(self._connect)
        self._opened = True

    def _heal(self) -> None:
        """Somebody's sync failed: what the log holds may not be on disk, and the kernel believes it is.

        So the log is written once more, byte for byte: that makes its pages dirty again, and the sync
        that follows is an honest one. A checkpoint would not do: until the log is whole on disk, nothing
        of it may reach the database.
        """
        healing = self._wound + ".healing"
        with suppress(FileNotFoundError):
            os.replace(self._wound, healing)  # a sync that fails from now on leaves a mark of its own
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
        """The mark a failed sync leaves for whoever opens the store next."""
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
        """Wait for the work under way, then close; False if a reader never came back."""
        if self._inbox is not None:
            self._inbox.stop()
        with HeldBack() as signals:
            self.queue.enter(Entry([]), signals)
            try:
                self.queue.wait_settled()
                return self._close(timeout_s, why)
            finally:
                self.queue.hand_over()

    def _close(self, timeout_s: float, why: BaseException | None) -> bool:
        if not self._opened:
            return True
        before = self.dead
        self.dead = self.dead or why or _closed()  # first: a reader that comes now is told why
        if not self._readers.close(timeout_s):
            self.dead = before
            return False
        self._opened = False
        # Left in place, the log is read again by the next opener; and a log that was replaced
        # under us must not be written into the database.
        self.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self.connection.close()
        self._log.close()
        self._bell.close()
        self.lock.close()
        return True

    # -- writing ------------------------------------------------------------------------------

    def write(self, body: Callable[[Tx], T], caller: Caller, *, durable: bool = True) -> T:
        if self.dead is not None or self._running == _get_ident() or (self._blocks and self._inside.block):
            self._usable()
        op = Op(body, caller, durable)
        with HeldBack() as signals:
            if not self.queue.lead_alone():
                self._commit(Entry([op]), signals)
            elif not self._alone(op):
                self._serve(Entry([op]), signals)
        if op.error is not None:
            raise op.error
        result: T = op.result
        return result

    def _alone(self, op: Op) -> bool:
        """One body, and nobody else in sight: straight through. False if it is not as simple: nothing was done,
        and this thread still leads.

        What `_serve` does for a batch, in one piece for one. A sync is long enough for the processor to forget
        what it knew: between two of them every function costs twice what it costs in a loop.
        """
        again = committed = False
        try:
            crash.point("commit.before_begin")
            if self.dead is not None or not self.lock.take():
                again = True
                return False
            try:
                self._running = _get_ident()
                self.begin()
                op.result = op.body(SqliteTx(self.cursor, op.caller))
                self.finish()
                committed = True
            except library.RETRYABLE:
                self.rollback()
                again = True
                return False
            except Exception as error:  # noqa: BLE001  # a body may raise anything; it belongs to its caller
                self.rollback()
                op.error = self.translated(error)
            except BaseException:
                self.rollback()
                raise
            finally:
                self._running = 0
                self.lock.release()
        finally:
            if not again:
                early = self.queue.hand_over_early()
                try:
                    if committed:
                        self._batches += 1
                        op.error = self._confirm(op.durable)
                        if self._batches % _CARE_EVERY == 0:
                            self._care()
                finally:
                    self.queue.settled(hand_over=not early)
        return True

    def submit(self, body: Callable[[Tx], T], caller: Caller, done: Done[T]) -> None:
        self._usable()
        inbox = self._inbox or self._open_inbox()
        if not inbox.put(Op(body, caller, True), done):
            raise self.dead or _closed()

    def _open_inbox(self) -> Inbox:
        with self._mutex:
            if self._inbox is None:
                self._inbox = Inbox(self._commit_together)
            return self._inbox

    def _commit_together(self, ops: list[Op]) -> None:
        """What an event loop has gathered."""
        self._usable()
        with HeldBack() as signals:
            self._commit(Entry(ops), signals)

    def _commit(self, entry: Entry, signals: HeldBack) -> None:
        if self.queue.enter(entry, signals):
            self._serve(entry, signals)

    def _serve(self, entry: Entry, signals: HeldBack) -> None:
        """Commit `entry`, which leads, and whoever waits; then let the next one lead, and answer."""
        batch: list[Entry] = []
        try:
            if self.dead is None:
                batch = self._lead(entry, signals)
            else:  # closed or given up while this one waited for its turn: nothing was run
                _fail([entry], self.dead)
        finally:
            early = self.queue.hand_over_early()
            try:
                self._acknowledge(batch, entry)
            finally:
                self.queue.settled(hand_over=not early)
        if entry.struck is not None:
            raise entry.struck

    @property
    def inside(self) -> bool:
        """Whether this thread is in the middle of a transaction: of a body it runs, or of one it holds."""
        return self._running == _get_ident() or self._inside.block

    def _usable(self) -> None:
        if self.dead is not None:
            raise self.dead
        if self.inside:
            raise InvalidInput(
                "a transaction is open in this thread: a second one would wait for it for ever",
                "inside `with sf.transaction() as tx`, use tx's rooms: tx.tasks.add(…)",
            )

    def _lead(self, entry: Entry, signals: HeldBack) -> list[Entry]:
        """Commit `entry` and whoever waits. Failures are kept in the ops; returns who was served."""
        batch, served = [entry], False

        def work() -> None:
            nonlocal batch, served
            batch = self.queue.gather(entry)
            self._running = _get_ident()
            try:
                batch = self._transact(batch, signals)
                served = True
            except Struck:
                self.queue.put_back(batch[1:])
                batch = [entry]
                raise
            finally:
                self._running = 0

        try:
            crash.point("commit.before_begin")
            self.lock.run(work, entry.deadline() - time.monotonic(), signals)
        except BaseException as error:
            if served:  # it struck when all was done: everybody is answered before it is heard of
                entry.struck = error
            elif isinstance(error, Exception):  # whatever it is, everybody in the batch hears of it
                _fail(batch, error)
            else:  # Ctrl-C while waiting: nothing was committed, and the others' work goes on without this one
                self.queue.put_back(batch[1:])
                raise
        self._batches += 1
        return batch

    def _transact(self, batch: list[Entry], signals: HeldBack) -> list[Entry]:
        while True:
            try:
                return self._run(batch)
            except library.RETRYABLE as error:
                self.rollback()
                if time.monotonic() > batch[0].deadline():
                    raise busy(self.path + ".lock", DEADLINE_S) from error
                signals.let_through()
                library.pause(0.05)
            except apsw.Error as error:
                self.rollback()
                raise self.translated(error) from error
            except BaseException:
                self.rollback()
                raise

    def _run(self, batch: list[Entry]) -> list[Entry]:
        self.begin()
        rest: list[Entry] = []
        started = time.monotonic() if len(batch) > 1 else 0.0
        try:
            for served, entry in enumerate(batch, 1):
                for op in entry.ops:
                    op.error = None
                    op.result = op.body(SqliteTx(self.cursor, op.caller))
                if served < len(batch) and time.monotonic() - started > SLOW_BATCH_S:
                    batch, rest = batch[:served], batch[served:]
                    break
        except library.RETRYABLE:
            raise
        except Exception as error:  # noqa: BLE001  # a body may raise anything; it belongs to its caller
            self.rollback()
            if len(batch) == 1 and len(batch[0].ops) == 1:
                batch[0].ops[0].error = self.translated(error)
                return batch
            return self._run_apart(batch)
        self.finish()
        if rest:
            self._slow += 1
            self.queue.put_back(rest)
        return batch

    def _run_apart(self, batch: list[Entry]) -> list[Entry]:
        """One of them fails: a savepoint around each, so that it fails alone."""
        self.begin()
        for op in ops(batch):
            op.error = None
            self.connection.execute("SAVEPOINT op")
            try:
                op.result = op.body(SqliteTx(self.cursor, op.caller))
                self.connection.execute("RELEASE op")
            except library.RETRYABLE:
                raise
            except Exception as error:
                op.error = self.translated(error)
                if not self.connection.in_transaction:  # a full disk ends the whole transaction
                    raise
                self.connection.execute("ROLLBACK TO op; RELEASE op").fetchall()
        self.finish()
        return batch

    def begin(self) -> None:
        self.cursor.execute("BEGIN IMMEDIATE")
        crash.point("commit.after_begin")
        if self.connection.data_version() != self._fenced_at:
            self._check_fence()

    def finish(self) -> None:
        crash.point("commit.before_commit")
        self.cursor.execute("COMMIT")
        self._fenced_at = self.connection.data_version()

    def _check_fence(self) -> None:
        """Somebody else has committed since our last commit. Was it a migration, and may we still write?"""
        found = self.connection.execute("PRAGMA user_version").get
        if found == self._schema:
            return
        row = self.connection.execute("SELECT value FROM meta WHERE key = 'min_writer'").get
        if row is not None and int(row) > self._schema:
            raise SchemaTooNew(
                f"the store was upgraded to schema {found} while this process ran with schema {self._schema}",
                "upgrade and restart this process: pip install --upgrade standfast",
            )

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self.cursor.execute("ROLLBACK")

    def translated(self, error: BaseException) -> BaseException:
        if not isinstance(error, apsw.Error):
            return error
        ours = library.translated(error, self.path)
        ours.__cause__ = error
        # Where a file cannot be opened for writing, be it for a moment (too many open files), SQLite opens it
        # for reading and stays with that: the next call opens all of them anew.
        if isinstance(ours, Corrupt) or isinstance(error, (apsw.IOError, apsw.ReadOnlyError)):
            self.dead = ours
        return ours

    def _acknowledge(self, batch: list[Entry], leader: Entry) -> None:
        committed, durable = [], False
        for entry in batch:
            for op in entry.ops:
                if op.error is None:
                    committed.append(op)
                    durable = durable or op.durable
        if committed:
            error = self._confirm(durable)
            if error is not None:
                for op in committed:
                    op.error = error
        self.queue.answer([entry for entry in batch if entry is not leader])
        if committed and self._batches % _CARE_EVERY == 0:
            self._care()

    def _confirm(self, durable: bool) -> BaseException | None:
        """Make durable what was committed, then tell those who wait for news."""
        crash.point("commit.after_commit")
        error = self._make_durable(durable)
        crash.point("commit.after_sync")
        self._bell.ring()
        return error

    def _make_durable(self, durable: bool) -> BaseException | None:
        """Sync what was committed; an error means that nobody can say whether it is on disk.

        One sync at a time: the kernel reports a failed write to one of those who wait for it, and
        whoever committed behind the gap must not believe its own success.
        """
        with self._syncing:
            if self.dead is not None and isinstance(self.dead, CommitUnknown):
                return self.dead
            try:
                self._log.settle(durable=durable)
                return None
            except CommitUnknown as error:
                self.dead = error
            except OSError as error:
                with suppress(OSError):
                    os.close(os.open(self._wound, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
                self.dead = _sync_failed(self.path, error)
            return self.dead

    def sync(self) -> None:
        self.queue.hold_files()
        try:
            self._usable_for_reading()
            error = self._make_durable(True)
        finally:
            self.queue.settled()
        if error is not None:
            raise error

    # -- a transaction in the caller's hands ------------------------------------------------------

    @contextmanager
    def transaction(self, caller: Caller) -> Iterator[Tx]:
        self._usable()
        held = Held(self, caller)
        try:
            with HeldBack() as signals:
                tx = held.begin(signals)
            self._blocks = self._inside.block = True
            yield tx
            with HeldBack():
                held.commit()
        except BaseException:
            with HeldBack():
                held.abandon()
            raise
        finally:
            self._inside.block = False

    def settle(self) -> None:
        """What a held transaction committed: on disk, and told to those who wait for news."""
        try:
            error = self._make_durable(True)
        finally:
            self.queue.settled()
        if error is not None:
            raise error
        self._bell.ring()

    # -- reading ------------------------------------------------------------------------------

    def _usable_for_reading(self) -> None:
        if self.dead is not None:
            raise self.dead

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
            except apsw.ReadOnlyError as error:  # a read that wants to write: nothing is wrong with the store
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
        return bell.watch(self._bell.path)

    # -- facts and care -------------------------------------------------------------------------

    def schema_version(self) -> int:
        return int(self.read(lambda tx: tx.one(_VERSION), self._caller)["user_version"])

    def facts(self) -> dict[str, object]:
        return {
            "engine": self.name,
            "path": self.path,
            "sqlite_version": apsw.sqlite_lib_version(),
            "apsw_version": apsw.apsw_version(),
            "file_system": place.file_system(os.path.dirname(self.path)),
            "size_bytes": os.stat(self.path).st_size,
            "wal_bytes": self._log.size_bytes(),
            "lock_holder_pid": holder(self.path + ".lock"),
            "batches": self._batches,
            "slow_batches": self._slow,
        }

    def care(self) -> None:
        """A log that has grown is emptied while nobody is in a hurry."""
        if self._outgrown(LOG_IDLE_BYTES):
            self._caring = True
            self._truncate_log(wait_s=CARE_WAIT_S)

    def _care(self) -> None:
        """The log outgrew its bound, because a reader pinned it: give the space back, off the hot path."""
        if self._outgrown(LOG_MAX_BYTES):
            self._caring = True
            threading.Thread(target=self._truncate_log, name="standfast-care", daemon=True).start()

    def _outgrown(self, bound_bytes: int) -> bool:
        """Whether the log is too large, and nobody sees to it yet."""
        try:
            return not self._caring and self._log.size_bytes() > bound_bytes
        except OSError:
            return False  # a disk that fails now is told to whoever writes next, not to whoever was committed

    def _truncate_log(self, wait_s: float = DEADLINE_S) -> None:
        try:
            loan = self._readers.lend()
        except readers.Closed:
            return
        try:
            connection = self._connect()
            # Passive first: it blocks nobody and leaves little to do under the lock.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            lock = FileLock(self.path + ".lock")
            try:
                lock.acquire(wait_s)
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                lock.close()
            connection.close()
        except (StandfastError, apsw.Error):
            pass  # The next round tries again; doctor shows a log that stays large.
        finally:
            self._caring = False
            self._readers.give_back(loan)


def _fail(batch: list[Entry], error: BaseException) -> None:
    for op in ops(batch):
        op.error = op.error or error


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
    """What can go wrong while opening, in our words."""
    end = time.monotonic() + DEADLINE_S
    try:
        yield
    except apsw.Error as error:
        raise library.translated(error, path) from error
    except BlockingIOError as error:
        raise busy(path + ".lock", end - time.monotonic()) from error
    except OSError as error:
        raise cannot_open(path, error) from error
