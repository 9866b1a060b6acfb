"""The SQLite engine: how a write reaches the disk.

    callers ──▶ queue ──▶ leader ──▶ file lock ──▶ BEGIN IMMEDIATE … COMMIT ──▶ unlock
                                                         │
                                    acknowledge ◀── sync the log ◀─┘ (the next leader is already at work)

The first caller to come leads: it takes the lock between processes and runs its own body and
those of everybody who queued meanwhile in one transaction. A lone caller finds the queue empty
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
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw

from standfast import crash
from standfast.db.contract import (
    BATCH_MAX,
    DEADLINE_S,
    TRANSACTION_MAX_S,
    Caller,
    Engine,
    Row,
    Tx,
    Watch,
)
from standfast.db.migrations import MIGRATIONS, Migration
from standfast.db.sql import statement
from standfast.db.sqlite import bell, library, migrate, place, readers
from standfast.db.sqlite.guard import Log
from standfast.db.sqlite.lock import FileLock, busy, holder
from standfast.db.sqlite.tx import SqliteTx
from standfast.errors import CommitUnknown, Corrupt, InvalidInput, SchemaTooNew, StandfastError, StorageError

T = TypeVar("T")

LOG_MAX_BYTES = 64 * 1024 * 1024
SLOW_BATCH_S = 0.05
"""Past this, the rest of a batch waits for the next one: nobody holds the lock for long."""
_CARE_EVERY = 512
_VERSION = statement("SELECT user_version FROM pragma_user_version")
_PRAGMAS = """
PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=1000; PRAGMA journal_size_limit=67108864;
PRAGMA foreign_keys=ON; PRAGMA cache_size=-16384; PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0;
PRAGMA trusted_schema=OFF
"""


class _Op:
    """One body on its way to the disk."""

    __slots__ = ("body", "caller", "durable", "error", "result")

    def __init__(self, body: Callable[[Tx], Any], caller: Caller, durable: bool) -> None:
        self.body = body
        self.caller = caller
        self.durable = durable
        self.result: Any = None
        self.error: BaseException | None = None


class _Entry:
    """One thread's place in the queue, with the bodies it brings."""

    __slots__ = ("alone", "leads", "ops", "since", "turn")

    def __init__(self, ops: list[_Op]) -> None:
        self.ops = ops
        self.alone = not ops  # it wants the lead itself, not to be served by another leader
        self.leads = False
        self.since = time.monotonic()
        self.turn = threading.Lock()
        self.turn.acquire()


class SqliteEngine(Engine):
    name = "sqlite"

    def __init__(
        self,
        path: str,
        caller: Caller,
        *,
        migrations: Sequence[Migration] = MIGRATIONS,
        allow_unsafe: bool = False,
        heal: bool = False,
    ) -> None:
        library.check()
        self.path = place.prepare(path, allow_unsafe=allow_unsafe)
        self.dead: BaseException | None = None
        self._caller = caller
        self._schema = migrations[-1].version
        self._handles = 0
        self._mutex = threading.Lock()
        self._queue: deque[_Entry] = deque()
        self._leading = False
        self._inside = threading.local()
        self._batches = 0
        self._slow = 0
        self._inbox: _Inbox | None = None
        self._caring = False
        self._opened = False
        with _opening(self.path):
            self._lock = FileLock(self.path + ".lock")
            self._lock.acquire(DEADLINE_S)
            try:
                self._open(caller, migrations, heal)
            finally:
                self._lock.release()

    # -- opening and closing ------------------------------------------------------------------

    def _open(self, caller: Caller, migrations: Sequence[Migration], heal: bool) -> None:
        """The caller holds the file lock. The guard's descriptor comes first and goes last."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        guard_fd = os.open(self.path, flags, 0o600)
        self._connection = self._connect()
        mode = self._connection.execute("PRAGMA journal_mode=WAL").get
        if mode != "wal":
            raise StorageError(f"{self.path} cannot use a write-ahead log (it answers {mode})", "standfast doctor")
        migrate.migrate(self._connection, caller, migrations)
        if heal:
            # The last sync of the old engine failed: what the log holds may not be on disk.
            # A full checkpoint writes it to the database, syncs that, and starts the log anew.
            self._connection.execute("PRAGMA synchronous=FULL; PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._connection.execute("PRAGMA synchronous=NORMAL").fetchall()
        self._connection.execute("SELECT count(*) FROM meta").fetchall()  # opens the log and its index
        self._log = Log(self.path, guard_fd)
        self._bell = bell.Bell(self.path + ".bell")
        self._readers = readers.Readers(self._connect)
        self._opened = True

    def _connect(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_NOFOLLOW
        connection = apsw.Connection(self.path, flags=flags, statementcachesize=256)
        connection.set_busy_timeout(200)  # foreign programs only; ours wait at the file lock
        migrate.define_guard(connection)
        connection.execute(_PRAGMAS).fetchall()
        return connection

    def retain(self) -> None:
        self._handles += 1

    def release(self) -> None:
        with _registry_lock:
            self._handles -= 1
            if self._handles > 0:
                return
            if _engines.get(self.path) is self:
                del _engines[self.path]
        self.close()

    def close(self, timeout_s: float = 10.0, *, why: BaseException | None = None) -> bool:
        """Wait for the work under way, then close; False if a reader never came back."""
        if self._inbox is not None:
            self._inbox.stop()
        entry = self._enter(_Entry([]))
        try:
            if not self._opened:
                return True
            self._opened = False
            self.dead = self.dead or why or InvalidInput("this store is closed", "open it again: standfast.open()")
            if not self._readers.close(timeout_s):
                return False
            # Left in place, the log is read again by the next opener; and a log that was replaced
            # under us must not be written into the database.
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._connection.close()
            self._log.close()
            self._bell.close()
            self._lock.close()
            return True
        finally:
            self._hand_over(entry)

    # -- writing ------------------------------------------------------------------------------

    def write(self, body: Callable[[Tx], T], caller: Caller, *, durable: bool = True) -> T:
        op = _Op(body, caller, durable)
        self._commit(_Entry([op]))
        if op.error is not None:
            raise op.error
        result: T = op.result
        return result

    def submit(
        self, body: Callable[[Tx], T], caller: Caller, done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        self._usable()
        with self._mutex:
            if self._inbox is None:
                self._inbox = _Inbox(self)
        self._inbox.put(_Op(body, caller, True), done)

    def _commit(self, entry: _Entry) -> None:
        self._usable()
        self._enter(entry)
        if not entry.leads:
            return
        batch: list[_Entry] = []
        try:
            batch = self._lead(entry)
        finally:
            self._hand_over(entry)
            self._acknowledge(batch, entry)

    def _usable(self) -> None:
        if self.dead is not None:
            raise self.dead
        if getattr(self._inside, "body", False):
            raise InvalidInput(
                "a transaction is open in this thread: a second one would wait for it for ever",
                "inside `with sf.transaction() as tx`, use tx's rooms: tx.tasks.add(…)",
            )

    def _enter(self, entry: _Entry) -> _Entry:
        """Lead at once, or wait until done or told to lead."""
        with self._mutex:
            if not self._leading:
                self._leading = entry.leads = True
                return entry
            self._queue.append(entry)
        try:
            entry.turn.acquire()
        except BaseException:
            self._leave(entry)
            raise
        return entry

    def _leave(self, entry: _Entry) -> None:
        """The waiting thread was interrupted: take its work back, or give the lead on."""
        with self._mutex:
            if entry in self._queue:
                self._queue.remove(entry)
            lead = entry.leads
        if lead:
            self._hand_over(entry)

    def _hand_over(self, entry: _Entry) -> None:
        with self._mutex:
            following = self._queue.popleft() if self._queue else None
            if following is None:
                self._leading = False
            else:
                following.leads = True
        if following is not None:
            following.turn.release()

    def _lead(self, entry: _Entry) -> list[_Entry]:
        """Commit `entry` and whoever waits. Failures are kept in the ops; returns who was served."""
        batch = [entry]
        end = entry.since + DEADLINE_S
        try:
            crash.point("commit.before_begin")
            self._lock.acquire(end - time.monotonic())
            try:
                with self._mutex:
                    while self._queue and not self._queue[0].alone and len(batch) < BATCH_MAX:
                        batch.append(self._queue.popleft())
                self._inside.body = True
                batch = self._transact(batch, end)
            finally:
                self._inside.body = False
                self._lock.release()
        except Exception as error:
            for op in _ops(batch):
                op.error = op.error or error
        except BaseException:
            # Ctrl-C reached the leader: nothing was committed, and the others' work goes on without it.
            self._requeue(batch[1:])
            raise
        self._batches += 1
        return batch

    def _requeue(self, entries: list[_Entry]) -> None:
        with self._mutex:
            self._queue.extendleft(reversed(entries))

    def _transact(self, batch: list[_Entry], end: float) -> list[_Entry]:
        while True:
            try:
                return self._run(batch)
            except library.RETRYABLE as error:
                self._rollback()
                if time.monotonic() > end:
                    raise busy(self.path + ".lock", DEADLINE_S) from error
                time.sleep(random.uniform(0.001, 0.05))
            except apsw.Error as error:
                self._rollback()
                raise self._translated(error) from error
            except BaseException:
                self._rollback()
                raise

    def _run(self, batch: list[_Entry]) -> list[_Entry]:
        self._begin()
        started = time.monotonic()
        rest: list[_Entry] = []
        try:
            for served, entry in enumerate(batch, 1):
                for op in entry.ops:
                    op.result = op.body(SqliteTx(self._connection, op.caller))
                if served < len(batch) and time.monotonic() - started > SLOW_BATCH_S:
                    batch, rest = batch[:served], batch[served:]
                    break
        except library.RETRYABLE:
            raise
        except Exception as error:
            self._rollback()
            if len(batch) == 1 and len(batch[0].ops) == 1:
                batch[0].ops[0].error = self._translated(error)
                return batch
            return self._run_apart(batch)
        self._finish()
        if rest:
            self._slow += 1
            self._requeue(rest)
        return batch

    def _run_apart(self, batch: list[_Entry]) -> list[_Entry]:
        """One of them fails: a savepoint around each, so that it fails alone."""
        self._begin()
        for op in _ops(batch):
            op.error = None
            self._connection.execute("SAVEPOINT op")
            try:
                op.result = op.body(SqliteTx(self._connection, op.caller))
                self._connection.execute("RELEASE op")
            except library.RETRYABLE:
                raise
            except Exception as error:
                op.error = self._translated(error)
                if not self._connection.in_transaction:  # a full disk ends the whole transaction
                    raise
                self._connection.execute("ROLLBACK TO op; RELEASE op").fetchall()
        self._finish()
        return batch

    def _begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        crash.point("commit.after_begin")
        found = migrate.version(self._connection)
        if found != self._schema:
            self._check_fence(found)

    def _finish(self) -> None:
        crash.point("commit.before_commit")
        self._connection.execute("COMMIT")

    def _check_fence(self, found: int) -> None:
        """Another process has migrated the store since we opened it: may we still write?"""
        row = self._connection.execute("SELECT value FROM meta WHERE key = 'min_writer'").get
        if row is not None and int(row) > self._schema:
            raise SchemaTooNew(
                f"the store was upgraded to schema {found} while this process ran with schema {self._schema}",
                "upgrade and restart this process: pip install --upgrade standfast",
            )

    def _rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _translated(self, error: BaseException) -> BaseException:
        if not isinstance(error, apsw.Error):
            return error
        ours = library.translated(error, self.path)
        ours.__cause__ = error
        if isinstance(ours, Corrupt) or isinstance(error, apsw.IOError):
            self.dead = ours
        return ours

    def _acknowledge(self, batch: list[_Entry], leader: _Entry) -> None:
        committed = [op for op in _ops(batch) if op.error is None]
        if committed:
            crash.point("commit.after_commit")
            error = self._make_durable(any(op.durable for op in committed))
            if error is not None:
                for op in committed:
                    op.error = error
            crash.point("commit.after_sync")
            self._bell.ring()
        for entry in batch:
            if entry is not leader:
                entry.turn.release()
        if committed and self._batches % _CARE_EVERY == 0:
            self._care()

    def _make_durable(self, durable: bool) -> BaseException | None:
        """Sync what was committed; an error means that nobody can say whether it is on disk."""
        try:
            self._log.check()
            if durable:
                self._log.sync()
                self._log.check()
        except CommitUnknown as error:
            self.dead = error
            return error
        except OSError as error:
            self.dead = _sync_failed(self.path, error)
            return self.dead
        return None

    def sync(self) -> None:
        self._usable_for_reading()
        error = self._make_durable(True)
        if error is not None:
            raise error

    # -- a transaction in the caller's hands ------------------------------------------------------

    @contextmanager
    def transaction(self, caller: Caller) -> Iterator[Tx]:
        self._usable()
        entry = self._enter(_Entry([]))
        held = _Held(self, entry, caller)
        try:
            self._inside.body = True
            yield held.begin()
            held.commit()
        except BaseException:
            held.abandon()
            raise
        finally:
            self._inside.body = False
        error = self._make_durable(True)
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
                time.sleep(random.uniform(0.001, 0.02))
            except apsw.Error as error:
                raise self._translated(error) from error

    def rows(self, text: str, params: dict[str, object] | None = None) -> Iterator[Row]:
        self._usable_for_reading()
        return readers.stream(self._connect(), text, params)

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

    def _care(self) -> None:
        """The log outgrew its bound, because a reader pinned it: give the space back, off the hot path."""
        if self._caring or self._log.size_bytes() <= LOG_MAX_BYTES:
            return
        self._caring = True
        threading.Thread(target=self._truncate_log, name="standfast-care", daemon=True).start()

    def _truncate_log(self) -> None:
        try:
            connection = self._connect()
            # Passive first: it blocks nobody and leaves little to do under the lock.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            lock = FileLock(self.path + ".lock")
            try:
                lock.acquire(DEADLINE_S)
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                lock.close()
            connection.close()
        except (StandfastError, apsw.Error):
            pass  # The next round tries again; doctor shows a log that stays large.
        finally:
            self._caring = False


class _Held:
    """The transaction of a `with sf.transaction()` block, and the clock that ends it."""

    def __init__(self, engine: SqliteEngine, entry: _Entry, caller: Caller) -> None:
        self._engine = engine
        self._entry = entry
        self._caller = caller
        self._over = False
        self._mutex = threading.RLock()
        self._timer = threading.Timer(TRANSACTION_MAX_S, self._expire)
        self._timer.daemon = True

    def begin(self) -> Tx:
        engine = self._engine
        engine._lock.acquire(self._entry.since + DEADLINE_S - time.monotonic())
        end = self._entry.since + DEADLINE_S
        while True:
            try:
                engine._begin()
                break
            except library.RETRYABLE as error:
                if time.monotonic() > end:
                    raise busy(engine.path + ".lock", DEADLINE_S) from error
                time.sleep(random.uniform(0.001, 0.05))
            except apsw.Error as error:
                raise engine._translated(error) from error
        self._timer.start()
        return _HeldTx(engine._connection, self._caller, self)

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Around each statement, so that the clock never ends the transaction in the middle of one."""
        with self._mutex:
            self._still_open()
            try:
                yield
            except apsw.Error as error:
                raise self._engine._translated(error) from error

    def _still_open(self) -> None:
        if self._over:
            raise StorageError(
                f"this transaction was open for more than {TRANSACTION_MAX_S:.0f} s and was rolled back",
                "keep slow work outside: every other writer waits for the block to end",
                code="transaction_too_long",
            )

    def commit(self) -> None:
        with self._mutex:
            self._still_open()
            try:
                self._engine._finish()
            except apsw.Error as error:
                raise self._engine._translated(error) from error
            self._end()
        crash.point("commit.after_commit")

    def abandon(self) -> None:
        with self._mutex:
            if not self._over:
                self._engine._rollback()
                self._end()

    def _expire(self) -> None:
        self.abandon()

    def _end(self) -> None:
        self._over = True
        self._timer.cancel()
        self._engine._lock.release()
        self._engine._hand_over(self._entry)


class _HeldTx(SqliteTx):
    """The same statements, each under the watch of the block's clock."""

    __slots__ = ("_held",)

    def __init__(self, connection: apsw.Connection, caller: Caller, held: _Held) -> None:
        super().__init__(connection, caller)
        self._held = held

    def maybe(self, statement: Any, /, **params: object) -> Row | None:
        with self._held.statement():
            return super().maybe(statement, **params)

    def all(self, statement: Any, /, **params: object) -> list[Row]:
        with self._held.statement():
            return super().all(statement, **params)

    def run(self, statement: Any, /, **params: object) -> None:
        with self._held.statement():
            super().run(statement, **params)


class _Inbox:
    """Bodies from event loops: one thread leads for all of them, one wake-up per batch and loop."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._waiting: list[tuple[_Op, Callable[[Any, BaseException | None], None]]] = []
        self._call = threading.Semaphore(0)
        self._stopped = False
        threading.Thread(target=self._run, name="standfast-inbox", daemon=True).start()

    def put(self, op: _Op, done: Callable[[Any, BaseException | None], None]) -> None:
        with self._mutex:
            self._waiting.append((op, done))
            first = len(self._waiting) == 1
        if first:
            self._call.release()

    def _run(self) -> None:
        while not self._stopped:
            self._call.acquire()
            while self._serve():
                pass

    def _serve(self) -> bool:
        with self._mutex:
            taken, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
        if not taken:
            return False
        try:
            self._engine._commit(_Entry([op for op, _ in taken]))
        except BaseException as error:
            for op, _ in taken:
                op.error = op.error or error
        for op, done in taken:
            done(op.result if op.error is None else None, op.error)
        return True

    def stop(self) -> None:
        self._stopped = True
        self._call.release()


def _ops(batch: list[_Entry]) -> Iterator[_Op]:
    return (op for entry in batch for op in entry.ops)


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
        raise StorageError(
            f"{path} cannot be opened: {error.strerror}",
            "standfast doctor tells what is wrong with the place",
            code="not_writable",
        ) from error


# -- one engine per process and file ----------------------------------------------------------------

_engines: dict[str, SqliteEngine] = {}
_registry_lock = threading.RLock()


_forked: set[str] = set()
"""Files that were in use when this process was forked off: not to be opened in it."""


def open_engine(path: str, caller: Caller, *, allow_unsafe: bool = False) -> SqliteEngine:
    """The engine of this process for this file: the open one, or a new one."""
    real = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(path))), os.path.basename(path))
    if real in _forked:
        raise StorageError(
            f"this process was forked while {real} was in use",
            "fork outside transactions and before reading, or start children with exec or spawn",
            code="forked",
        )
    with _registry_lock:
        found = _engines.get(real)
        heal = found is not None and getattr(found.dead, "code", "") == "sync_failed"
        if found is not None and found.dead is not None:
            if not found.close(timeout_s=5.0):
                raise StorageError("the old connection to this store is still in use", "restart this process")
            found = None
        if found is None:
            found = _engines[real] = SqliteEngine(real, caller, allow_unsafe=allow_unsafe, heal=heal)
        found.retain()
        return found


def _before_fork() -> None:
    """Close every engine: SQLite's lock bookkeeping, copied into a child, would be wrong there."""
    _registry_lock.acquire()
    why = StorageError("this connection was closed because the process forked", code="forked")
    for path, engine in list(_engines.items()):
        if not getattr(engine._inside, "body", False) and engine.close(timeout_s=2.0, why=why):
            del _engines[path]


def _after_fork_in_child() -> None:
    """What could not be closed is kept for ever and never touched: it is the parent's."""
    for path, engine in _engines.items():
        engine.dead = StorageError("this connection belongs to the parent process", code="forked")
        _forked.add(path)
        _parents.append(engine)
    _engines.clear()
    _registry_lock.release()


_parents: list[SqliteEngine] = []

os.register_at_fork(before=_before_fork, after_in_parent=_registry_lock.release, after_in_child=_after_fork_in_child)
