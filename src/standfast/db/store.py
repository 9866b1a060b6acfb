"""A store bound to a caller, and the decorators `transactional` and `query`, which make a method of a body.

`Store` is the engine and the caller of every resource. After a fork, or if its engine is dead, the next call opens a
new engine. It pins the store's id and epoch at the first open: another store at the same place is refused
(`store_replaced`). `Resource` is the base class of all resources. `@transactional` lets a body join the transaction
that its resource is bound to, or opens one. A method that checks its arguments first, or does something after the
commit, calls `self._write(lambda tx: …)`.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from standfast import log
from standfast.config import CopyOptions
from standfast.config.scope import Keyspace
from standfast.db.contract import Caller, Done, Engine, Numbered, Row, Tx, Watch
from standfast.db.sql import statement
from standfast.db.store_memory import OVERWRITTEN, Memory, behind, mixed, refuse_lost, replaced
from standfast.errors import InvalidInput, NoAttribute, StandfastError, StorageError

if TYPE_CHECKING:
    from inspect import Signature
    from typing import Self

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R", bound="Resource")

_LAST = statement("SELECT seq FROM event ORDER BY seq DESC LIMIT 1", name="last_seq")


class Companion(Protocol):
    """A thread that runs as long as the store is open, such as the one that renews leases."""

    def stop(self) -> None: ...


class Store:
    """One engine and one caller. Thread-safe."""

    def __init__(self, connect: Callable[[Caller], Engine], caller: Caller, identify: Callable[[], str]) -> None:
        self._connect = connect
        self._identify = identify
        self._mutex = threading.Lock()
        self._engine: Engine | None = connect(caller)
        self.pin = (self._engine.store_id, self._engine.epoch)
        """Id and epoch of the store that this handle belongs to."""
        self.shown = "this place"
        """Where the store is, without passwords."""
        self.memory: Memory | None = None
        """The record that this host has of this store, or None."""
        self._noted = 0
        self._newest: tuple[int, int, Numbered] | None = None
        """The newest journal row that an engine of this handle acknowledged before it was abandoned."""
        self._changes = 0
        """The highest change counter that such an engine saw."""
        self.written = False
        """Whether a durable write went through this handle."""
        self._pid = os.getpid()
        self.caller = caller
        self.closed = False
        self.companions: dict[str, Companion] = {}
        self.notify: tuple[str, ...] = ()
        """The command to start when something needs a person; from the configuration."""
        self.data_dir: str | None = None
        """Where this store's files beside the database are kept."""
        self.artifact_max_bytes = 1024 * 1024 * 1024
        """The most bytes one artifact may have; from the configuration."""
        self.artifact_bucket: str | None = None
        """Where artifacts go if not beside the store: s3://…; from the configuration."""
        self.copies = CopyOptions()
        """The place of copies and which are kept; from the configuration."""
        self.redact = True
        """Whether secrets are taken out of messages and captured output; from the configuration."""
        self.noticed: dict[tuple[str, str], int] = {}
        """By name and holder of an agent: the time of its last heartbeat that this handle wrote."""
        self._here = threading.local()

    @property
    def engine(self) -> Engine:
        """The live engine: opened again in a forked child, or after the old one was abandoned."""
        engine = self._engine
        if engine is None or engine.dead is not None or self._pid != os.getpid():
            engine = self._reopen()
        return engine

    def _reopen(self) -> Engine:
        if self._pid != os.getpid():
            self._mutex = threading.Lock()  # the parent's other threads may have held it when it forked
        with self._mutex:
            if self.closed:
                raise InvalidInput("this store is closed", "open it again with standfast.open()")
            if self._pid != os.getpid():
                # A forked child is another holder. It has no leases, and none of the threads of its parent.
                old, self._pid, self.companions = self.caller, os.getpid(), {}
                self.caller = Caller(
                    actor=old.actor,
                    holder=self._identify(),
                    scope=old.scope,
                    clock=old.clock,
                    label=old.label,
                    repository=old.repository,
                )
            elif self._engine is not None and self._engine.dead is None:
                return self._engine
            reason = self._engine.dead if self._engine is not None else None
            if self._engine is not None:
                if getattr(self._engine.dead, "code", "") == OVERWRITTEN:
                    raise mixed(self.shown)
                self._newest = self._engine.newest or self._newest
                self._changes = max(self._engine.changes, self._changes)
            self._engine = None
            engine = self._connect(self.caller)
            try:
                self._check_pin(engine)
            except BaseException:
                engine.release()
                raise
            self._engine = engine
            log.info("reopened %s: %s", self.shown, reason or "after a fork")
            return engine

    def _check_pin(self, engine: Engine) -> None:
        """Check that this is the same store, and that its journal has every row that was acknowledged to this handle
        and every row that any process of this host noted before it sent an effect."""
        found = (engine.store_id, engine.epoch)
        if found != self.pin:
            raise replaced(self.shown, self.pin, found)
        if engine.changes < self._changes:
            raise mixed(self.shown)
        seen = max(self._noted, self.memory.seq() if self.memory is not None else 0)
        last = engine.read(lambda tx: tx.maybe(_LAST), self.caller) if seen else None
        if seen and (last is None or last["seq"] < seen):
            raise behind(self.shown, last["seq"] if last else 0, seen)
        engine.read(lambda tx: refuse_lost(tx, self.shown, self._newest), self.caller)

    def note(self, seq: int, hash: str) -> None:
        """Remember an acknowledged row before a caller acts on it."""
        self._noted = max(self._noted, seq)
        if self.memory is not None:
            self.memory.note(seq, hash)

    def write(self, body: Callable[[Tx], T | StandfastError], *, durable: bool = True) -> T:
        self.written = self.written or durable
        return raised(self._on_live_engine(lambda engine: engine.write(body, self.caller, durable=durable)))

    def read(self, body: Callable[[Tx], T | StandfastError]) -> T:
        return raised(self._on_live_engine(lambda engine: engine.read(body, self.caller)))

    def _on_live_engine(self, use: Callable[[Engine], T]) -> T:
        """Run `use`. If the process forked while this thread waited, `use` has not run: run it on a new engine."""
        while True:
            engine = self.engine
            try:
                return use(engine)
            except StorageError as error:
                if not _forked(engine, error):
                    raise

    def submit(self, body: Callable[[Tx], T], done: Done[T]) -> Callable[[], bool]:
        """Like `write`, without blocking; see `Engine.submit`."""
        engine = self.engine
        self.written = True

        def answered(result: T | None, error: BaseException | None) -> None:
            if isinstance(error, StorageError) and _forked(engine, error):
                self.submit(body, done)
            else:
                done(result, error)

        return engine.submit(body, self.caller, answered)

    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        self.written = True
        with ExitStack() as stack:
            tx = self._on_live_engine(lambda engine: stack.enter_context(engine.transaction(self.caller)))
            self._here.tx = tx
            try:
                yield tx
            finally:
                self._here.tx = None
        for action in tx.after or ():
            action()

    @property
    def held(self) -> Tx | None:
        """The transaction this thread holds in a `with sf.transaction()` block."""
        tx: Tx | None = getattr(self._here, "tx", None)
        return tx

    def rows(self, text: str, params: dict[str, object] | None = None) -> Iterator[Row]:
        return self._on_live_engine(lambda engine: engine.rows(text, params))

    def sync(self) -> None:
        self._on_live_engine(lambda engine: engine.sync())

    def watch(self) -> Watch:
        return self.engine.watch()

    def close(self) -> None:
        """Release the engine. A forked child must not touch the engine of its parent."""
        engine, self._engine, self.closed = self._engine, None, True
        if self._pid != os.getpid():
            return
        for companion in self.companions.values():
            companion.stop()
        if engine is not None:
            engine.release()


class Resource:
    """The methods of one model, on a store or inside one transaction of it."""

    __slots__ = ("store", "tx")

    def __init__(self, store: Store, tx: Tx | None = None) -> None:
        self.store = store
        self.tx = tx

    if not TYPE_CHECKING:  # a type checker must refuse unknown names

        def __getattr__(self, name: str) -> Any:
            raise NoAttribute(f"{type(self).__name__!r} object", name, dir(type(self)))

    @property
    def scope(self) -> str:
        return self.store.caller.scope

    @property
    def keyspace(self) -> Keyspace:
        """The scope and the repository: where tasks, decisions, state and gates are kept."""
        return self.store.caller.keyspace

    @property
    def agent(self) -> str:
        """The name under which this handle works: `open(agent=)`."""
        return self.store.caller.actor

    def within(self, tx: Tx) -> Self:
        """A copy of this resource inside a transaction that is already open."""
        return type(self)(self.store, tx)

    def _write(self, body: Callable[[Tx], T | StandfastError]) -> T:
        """Run `body` in the transaction this resource is in, or in one of its own."""
        return self.store.write(body) if self.tx is None else raised(body(self.tx))

    def _read(self, body: Callable[[Tx], T | StandfastError]) -> T:
        """Run `body` in the transaction this resource is in, or on one consistent snapshot."""
        return self.store.read(body) if self.tx is None else raised(body(self.tx))


class _Public:
    """The body of a method with the signature that callers see, without `tx`. Computed on demand, because importing
    `inspect` is slow."""

    __slots__ = ("__wrapped__",)

    def __init__(self, body: Callable[..., object]) -> None:
        self.__wrapped__ = body

    @property
    def __signature__(self) -> Signature:
        import inspect

        found = inspect.signature(self.__wrapped__)
        return found.replace(parameters=[one for name, one in found.parameters.items() if name != "tx"])


def transactional(body: Callable[Concatenate[R, Tx, P], T | StandfastError]) -> Callable[Concatenate[R, P], T]:
    """A method that changes something: one transaction of its own, or part of the one it is in."""

    @functools.wraps(body)
    def call(resource: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return resource._write(lambda tx: body(resource, tx, *args, **kwargs))

    call.__wrapped__ = _Public(body)  # type: ignore[assignment]
    call.body = body  # type: ignore[attr-defined]  # aio submits it without a worker thread
    return call


def query(body: Callable[Concatenate[R, Tx, P], T | StandfastError]) -> Callable[Concatenate[R, P], T]:
    """A method that only reads: one consistent snapshot, or the transaction it is in."""

    @functools.wraps(body)
    def call(resource: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return resource._read(lambda tx: body(resource, tx, *args, **kwargs))

    call.__wrapped__ = _Public(body)  # type: ignore[assignment]
    return call


def _forked(engine: Engine, error: StorageError) -> bool:
    """Another thread forked while this one waited for its turn: the engine was closed, and nothing was run."""
    return error is engine.dead and error.code == "forked"


def raised(result: T | StandfastError) -> T:
    """Raise the refusal that a body returned. A body that has written returns its refusal, so that the write is
    committed."""
    if isinstance(result, StandfastError):
        raise result
    return result


def refused_inside(tx: Tx | None, what: str) -> None:
    """Some methods call foreign code or wait. They are refused inside a transaction."""
    if tx is not None:
        raise InvalidInput(
            f"{what} cannot run inside a transaction: it would hold every other writer while it works",
            f"call it on the handle, before or after the block: sf.{what}(…)",
        )
