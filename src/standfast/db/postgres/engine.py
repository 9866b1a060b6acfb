"""The PostgreSQL engine: how a body runs on the server, and how errors are retried.

    body ──▶ pooled connection ──▶ BEGIN · settings · clock · fence ──▶ statements ──▶ COMMIT
      ▲                                                                                   │
      └── again: a lost race, or a connection lost before COMMIT left ◀───── answer? ─────┤
                                                                                          ▼
                      CommitUnknown: the answer to COMMIT was lost          acknowledged, bell rung

The server itself does group commits. A write is acknowledged when COMMIT has answered under `synchronous_commit = on`.
A body runs in its caller's thread, in a transaction of its own. Time comes from the server, so that two hosts compare a
lease with one clock.

`registry` keeps one engine per process and URL. A forked child gets an engine of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from standfast import crash, log, modules
from standfast.db import hot
from standfast.db.contract import Caller, Done, Engine, OnMigrate, Row, Tx, Watch, no_copy, refuse_copy
from standfast.db.migrations import MIGRATIONS, refuse
from standfast.db.migrations.migration import Migration
from standfast.db.move_mark import moved_away
from standfast.db.postgres import faults, migrate, server_checks, user_queries
from standfast.db.postgres.address import Address
from standfast.db.postgres.connect import connect
from standfast.db.postgres.faults import Fault, Remedy
from standfast.db.postgres.notify import CHANNEL, Bell, Ear, Listener
from standfast.db.postgres.pool import Permit, Pool
from standfast.db.postgres.retry import RetryBudget
from standfast.db.postgres.tx import Mode, PostgresTx, modes
from standfast.db.postgres.values import Bound
from standfast.db.postgres.wire import Wire
from standfast.db.sql import statement
from standfast.errors import InvalidInput, StorageError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

DIRECT_URL = "STANDFAST_DB_DIRECT_URL"
"""A URL of the server itself, not of its pooler, for notifications only."""
SUBMITTED_MAX = 8
"""The most submitted bodies that run at the same time. The others wait in a queue."""
CLOSING_S = 10.0
NOTIFY_S = 2.0
_VERSION = statement("SELECT CAST(value AS bigint) AS version FROM meta WHERE key = 'schema_version'")
# Commit without waiting for the disk: NOTIFY is a hint, and its lock blocks every other NOTIFY of the server.
_NOTIFY = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify('{CHANNEL}', $1)".encode()


class PostgresEngine(Engine):
    name = "postgres"

    def __init__(
        self,
        url: str,
        caller: Caller,
        *,
        migrations: Sequence[Migration] = MIGRATIONS,
        allow_unsafe: bool = False,
        on_idle: Callable[[PostgresEngine], None] = lambda engine: engine.close(),
        on_create: Callable[[], None] = lambda: None,
        on_migrate: OnMigrate = no_copy,
    ) -> None:
        self.address = Address(url)
        self.identity = self.address.url
        self.dead: BaseException | None = None
        self._caller = caller
        self._pid = os.getpid()
        self.handles = 0
        self._handles_mutex = threading.Lock()
        self._on_idle = on_idle
        self._on_migrate = on_migrate
        self._on_create = on_create
        """Called before a store is created. Raises if none may be created here."""
        self._inside = threading.local()
        self._prepare = False
        self._pool = Pool(self._dial)
        self._executor: ThreadPoolExecutor | None = None
        try:
            self._found = self._open(migrations, allow_unsafe)
            self._hot = hot.Hot(self.store_id) if hot.url() else None
            self._bell = Bell(self._notify, self._ear())
        except BaseException as error:
            self._pool.close()
            if isinstance(error, Fault):
                raise faults.translated(error, self.address) from None
            raise
        self._modes = modes(self._found.version, self.store_id, self.epoch, self.moved)

    # -- open and close -----------------------------------------------------------------------

    def _open(self, migrations: Sequence[Migration], allow_unsafe: bool) -> server_checks.Found:
        permit = self._first_permit()
        try:
            wire = _wire(permit)
            found = server_checks.look(wire, self.address, allow_unsafe=allow_unsafe)
            wire.prepare = self._prepare = not (found.pooled or self.address.pooler)
        finally:
            self._pool.give(permit)
        latest = migrations[-1].version
        refuse(found.schema, found.history, migrations)
        moved = migrate.moved(found)
        meta = found.meta
        if found.schema < latest or moved:
            meta = self._bring_up(found, migrations, moved=moved)
        self.store_id, self.epoch = meta.get("store_id", ""), int(meta.get("epoch", "1"))
        self.copy_of, self.moved = meta.get("copy_of", ""), meta.get("moved", "")
        self.standby = found.standby
        return found

    def _first_permit(self) -> Permit:
        effort = RetryBudget()
        while True:
            try:
                return self._pool.take(effort.left_s())
            except Fault as fault:
                # Wait only for a server that answers: it is starting, or has no free connection.
                later = fault.sqlstate in (faults.STARTING, faults.FULL_HOUSE)
                again = fault.sqlstate == faults.REFUSED and effort.tries == 0
                if not (later or again) or not effort.pause(fault):
                    raise

    def _bring_up(self, found: server_checks.Found, migrations: Sequence[Migration], *, moved: bool) -> dict[str, str]:
        """Migrate the store, or settle a journal from another cluster. Returns the new `meta`."""
        if found.standby:
            raise faults.read_only(self.address.shown)
        if found.schema == 0:
            self._on_create()
        elif found.schema < migrations[-1].version:
            self._on_migrate(found.meta.get("store_id", ""), found.schema, migrations[-1].version)
        with connect(self.address) as connection, faults.spoken(self.address):
            if found.schema < migrations[-1].version:
                migrate.migrate(connection, migrations)
            if moved:
                migrate.settle(connection, found.cluster)
            return dict(connection.execute(server_checks.META).fetchall())

    def _dial(self) -> Wire:
        return Wire(connect(self.address), prepare=self._prepare)

    def retain(self) -> None:
        with self._handles_mutex:
            self.handles += 1

    def release(self) -> None:
        with self._handles_mutex:
            self.handles -= 1
            last = self.handles == 0
        if last:
            self._on_idle(self)

    def close(self) -> None:
        """Let running work finish, send pending notifications, close the connections."""
        if self.dead is not None:
            return
        if self._executor is not None:
            ending = threading.Thread(target=self._executor.shutdown, daemon=True)
            ending.start()
            ending.join(CLOSING_S)
        self.dead = InvalidInput("this store is closed", "open it again: standfast.open()")
        self._bell.close(NOTIFY_S)
        self._pool.close()

    # -- writes -------------------------------------------------------------------------------

    def write(self, body: Callable[[Tx], T], caller: Caller, *, durable: bool = True) -> T:
        self._usable()
        return self._perform(self._modes.write if durable else self._modes.relaxed, body, caller)

    def submit(self, body: Callable[[Tx], T], caller: Caller, done: Done[T]) -> Callable[[], bool]:
        self._usable()

        def job() -> None:
            try:
                result = self.write(body, caller)
            except BaseException as error:  # noqa: BLE001 - the waiting caller gets any error
                done(None, error)
            else:
                done(result, None)

        return self._threads().submit(job).cancel

    def _threads(self) -> ThreadPoolExecutor:
        """Threads for submitted bodies. Each uses one connection while it works."""
        modules.load("concurrent.futures.thread")  # a module that event loops have loaded, and commands do not need
        from concurrent.futures import ThreadPoolExecutor

        with self._handles_mutex:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(SUBMITTED_MAX, thread_name_prefix="standfast-worker")
            return self._executor

    def _usable(self) -> None:
        self._usable_for_reading()
        refuse_copy(self)
        open_here: PostgresTx | None = getattr(self._inside, "tx", None)
        if open_here is not None and not open_here.over:
            raise InvalidInput(
                "a transaction is open in this thread: a second one would wait for it for ever",
                "inside `with sf.transaction() as tx`, use tx's resources: tx.tasks.add(…)",
            )

    def _usable_for_reading(self) -> None:
        if self.dead is not None:
            raise self.dead

    def _perform(self, mode: Mode, body: Callable[[Tx], T], caller: Caller) -> T:
        effort = RetryBudget()
        while True:
            try:
                return self._attempt(mode, body, caller, effort.left_s())
            except Fault as fault:
                self._refuse_vanished(fault)
                self._mend(fault, effort, mode)
            except StorageError as error:
                self._end_if_replaced(error)
                raise

    def _end_if_replaced(self, error: BaseException) -> None:
        """End this engine if the database has another store or the store moved.

        The next handle opens the right store.
        """
        if isinstance(error, StorageError) and error.code == "store_replaced":
            away = self._moved_away()
            self.dead = away or error
            self._pool.close()
            if away is not None:
                raise away from None

    def _moved_away(self) -> StorageError | None:
        """Why the store refuses writes, if it moved."""
        with self._lent(NOTIFY_S) as wire:
            said = server_checks.meta(wire).get("moved", "")
        return moved_away(said) if said else None

    def _refuse_vanished(self, fault: Fault) -> None:
        """If a table of ours is missing, check whether the whole store is.

        Then this engine ends with `store_missing`.
        """
        if fault.sqlstate not in server_checks.NO_SUCH_TABLE:
            return
        from standfast.db.store_memory import missing

        with self._lent(NOTIFY_S) as wire:
            if server_checks.is_fresh(wire):
                self.dead = missing(self.address.shown)
                raise self.dead

    def _attempt(self, mode: Mode, body: Callable[[Tx], T], caller: Caller, left_s: float) -> T:
        """Run the body once. Raises Fault if a retry may help, and any other exception unchanged."""
        if mode.writes:
            crash.point("commit.before_begin")
        permit = self._pool.take(left_s)
        try:
            tx = PostgresTx(_wire(permit), caller, mode, self._alive)
            try:
                tx.begin()
                if mode.writes:
                    self._inside.tx = tx
                result = body(tx)
                tx.commit()
            except BaseException as error:
                tx.abandon()
                self._refuse_unknown(tx)
                if tx.fault is not None and isinstance(error, Exception):  # even if the body caught it
                    raise tx.fault from None
                raise
        finally:
            self._give(permit)
        if tx.wrote and mode is not self._modes.relaxed:  # nothing waits for a heartbeat
            self._bell.ring()
        return result

    def _refuse_unknown(self, tx: PostgresTx) -> None:
        """Raise CommitUnknown: COMMIT was sent and its answer is lost. The body never runs again."""
        if tx.commit_sent and isinstance(tx.fault, Fault) and tx.fault.lost and tx.fault.sqlstate != faults.STANDSTILL:
            self._pool.renew()
            raise faults.commit_unknown(tx.fault, self.address) from None

    def _mend(self, fault: Fault, effort: RetryBudget, mode: Mode) -> None:
        """Prepare another attempt, or raise our error."""
        if fault.sqlstate in faults.READ_ONLY and not mode.writes:
            raise faults.only_a_read(fault)
        remedy = faults.remedy(fault)
        if fault.sqlstate in faults.TOO_OLD and mode.age_s is not None:
            remedy = Remedy.NONE  # a rerun would time out too
        if remedy is Remedy.UNPREPARE:
            self._prepare = False
        if remedy in (Remedy.UNPREPARE, Remedy.RECONNECT):
            self._pool.renew()
        hopeless = self._found.standby and fault.sqlstate in faults.READ_ONLY
        if remedy is Remedy.NONE or hopeless or (remedy is Remedy.RERUN_FEW and not effort.few()):
            raise faults.translated(fault, self.address) from None
        if not effort.pause(fault):
            raise faults.busy(fault, self.address, effort.waited_s(), self._in_the_way()) from None
        log.info("retry %d: sqlstate %s", effort.tries, fault.sqlstate)

    def _in_the_way(self) -> str:
        try:
            with self._lent(NOTIFY_S) as wire:
                return user_queries.in_the_way(wire)
        except Fault:
            return ""

    def held_back(self) -> str:
        self._usable_for_reading()
        try:
            with self._lent(NOTIFY_S) as wire:
                return user_queries.held_back(wire)
        except Fault:
            return ""  # this is only a hint, and the reader raises the error itself

    def sync(self) -> None:
        # Nothing to wait for: a commit is visible only after it is on disk. The exception is a heartbeat
        # (`durable=False`), which a crash may lose. That only ends a lease early. No row that a caller acts on is
        # written this way.
        self._usable_for_reading()

    # -- a transaction that a caller holds --------------------------------------------------------

    @contextmanager
    def transaction(self, caller: Caller) -> Iterator[Tx]:
        self._usable()
        permit, tx = self._begin_held(caller)
        try:
            self._inside.tx = tx
            yield tx
            tx.commit()
        except BaseException:
            tx.abandon()
            self._refuse_unknown(tx)
            raise
        finally:
            self._give(permit)
        self._bell.ring()

    def _begin_held(self, caller: Caller) -> tuple[Permit, PostgresTx]:
        """Begin the transaction, with retries. The caller's block runs only after BEGIN has succeeded, because it is
        never rerun."""
        effort = RetryBudget()
        while True:
            permit: Permit | None = None
            try:
                crash.point("commit.before_begin")
                permit = self._pool.take(effort.left_s())
                tx = PostgresTx(_wire(permit), caller, self._modes.held, self._alive)
                tx.begin()
                tx.collect()
                tx.speak = self._speak
                return permit, tx
            except BaseException as error:
                if permit is not None:
                    self._give(permit)
                if not isinstance(error, Fault):
                    self._end_if_replaced(error)
                    raise
                self._refuse_vanished(error)
                self._mend(error, effort, self._modes.held)

    def _speak(self, fault: Exception) -> Exception:
        return faults.translated(fault, self.address) if isinstance(fault, Fault) else fault

    # -- reads --------------------------------------------------------------------------------

    def read(self, body: Callable[[Tx], T], caller: Caller) -> T:
        self._usable_for_reading()
        return self._perform(self._modes.read, body, caller)

    def rows(self, text: str, params: dict[str, object] | None = None) -> Iterator[Row]:
        self._usable_for_reading()
        return user_queries.rows(self.address, text, params)

    def index_vectors(self, table: str, dimensions: int) -> tuple[str, int]:
        from standfast.db.postgres import vectors

        return vectors.index(self.address, table, dimensions)

    def schema_version(self) -> int:
        return int(self.read(lambda tx: tx.one(_VERSION), self._caller)["version"])

    # -- notification ---------------------------------------------------------------------------

    def watch(self) -> Watch:
        self._usable_for_reading()
        return self._bell.watch()

    def _ear(self) -> Callable[[Bell], Ear] | None:
        """How to receive notifications of other processes: by LISTEN, or by Valkey behind a pooler. None behind a
        pooler without Valkey.
        """
        direct = os.environ.get(DIRECT_URL, "").strip()
        if direct or self._prepare:
            address = Address(direct) if direct else self.address
            return lambda bell: Listener(lambda: connect(address), bell)
        if hot.url():
            return lambda bell: hot.Hot(self.store_id).listen(bell.heard)
        return None

    def _notify(self) -> None:
        if self._hot is not None:
            self._hot.publish(self._bell.tag)
        with self._lent(NOTIFY_S) as wire:
            wire.send(_NOTIFY, Bound([self._bell.tag.encode()], [0], [0]))
            wire.collect(NOTIFY_S)

    # -- facts ------------------------------------------------------------------------------------

    def facts(self) -> dict[str, object]:
        self._usable_for_reading()
        try:
            with self._lent(user_queries.ANSWER_S) as wire:
                server = user_queries.facts(wire)
                place = wire.place()
        except Fault as fault:
            raise faults.translated(fault, self.address) from None
        return {
            "engine": self.name,
            "url": self.address.shown,
            **place,
            **server,
            "driver_version": user_queries.driver_version(),
            "pooler": not self._prepare,
            "listening": self._bell.listening,
            "pool": self._pool.use(),
        }

    # -- connections --------------------------------------------------------------------------------

    @contextmanager
    def _lent(self, timeout_s: float) -> Iterator[Wire]:
        permit = self._pool.take(timeout_s)
        try:
            yield _wire(permit)
        finally:
            self._give(permit)

    def _give(self, permit: Permit) -> None:
        if self._pid == os.getpid():
            self._pool.give(permit)

    def _alive(self) -> None:
        if self._pid != os.getpid():
            raise StorageError("this transaction belongs to the parent process", code="forked")


def _wire(permit: Permit) -> Wire:
    assert permit.wire is not None, "a lent permit has a connection"
    return permit.wire
