"""The handle: one open store, with its resources.

`open()` finds the store by `config` and returns a `Standfast`. Without a URL the store is a file in the data directory.
Its attributes are the resources: `sf.leases`, `sf.journal`. `with sf.transaction() as tx:` gives the same resources
inside one transaction: several changes happen together or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from standfast import clock as clocks
from standfast import config, log, modules
from standfast.core import repositories
from standfast.core.leases import actor_holder, process, this_process
from standfast.core.progress import Progress, quiet
from standfast.db import store_memory
from standfast.db.contract import Caller, Engine, Row, Tx
from standfast.db.store import Resource, Store
from standfast.errors import InvalidInput, NoAttribute, StandfastError

if TYPE_CHECKING:
    from standfast.admin.copies.resource import Copies, Copy
    from standfast.admin.undo import Removed, Undone
    from standfast.aio import AsyncStandfast
    from standfast.checkpoint.checkpoints import Checkpoints
    from standfast.checkpoint.search_index import SearchIndex
    from standfast.clock import Clock, Duration, Time
    from standfast.core.artifacts import Artifacts
    from standfast.core.journal import Journal
    from standfast.core.leases import Leases
    from standfast.core.receipts import Receipt
    from standfast.interchange.bundle_export import Bundle
    from standfast.interchange.imports import Imports
    from standfast.interchange.text_export import TextExport
    from standfast.ledger.approvals import Approvals
    from standfast.ledger.budgets import Budgets
    from standfast.ledger.credits import Credits
    from standfast.ledger.decisions import Decisions
    from standfast.ledger.effects.resource import Effects
    from standfast.ledger.gates import Gates
    from standfast.ledger.webhooks import Webhooks
    from standfast.record.agents import Agents
    from standfast.record.apply import Applied
    from standfast.record.events import Events
    from standfast.record.items import Items
    from standfast.record.knowledge import KnowledgeStore
    from standfast.record.loops import Loops
    from standfast.record.loops.runs import Runs
    from standfast.record.mail import Mails
    from standfast.record.open_session import Session
    from standfast.record.sessions import Sessions
    from standfast.record.state import State
    from standfast.record.tasks import Tasks
    from standfast.record.threads import Threads
    from standfast.views.brief import Brief
    from standfast.views.recovery import Recovery
    from standfast.views.search import Hits
    from standfast.views.timeline import Timeline
    from standfast.views.usage import Usage

T = TypeVar("T")
R = TypeVar("R", bound=Resource)


def open(
    url: str | os.PathLike[str] | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    agent: str | None = None,
    scope: str | None = None,
    clock: Clock | None = None,
) -> Standfast:
    """Open the store; the first time, make it. Thread-safe; use as a context manager or close().

    `url` is a path or postgresql://…. Without it the environment and the configuration decide, and by default a file in
    the data directory is used. ":memory:" is a private store removed at close. A key names one thing in the store,
    wherever a program starts; `scope` separates keys on purpose. `agent` is the name under which everything is
    recorded, and the address of its mail.
    """
    return connect(config.load(url, data_dir=data_dir, actor=agent, scope=scope), clock=clock)


def aopen(
    url: str | os.PathLike[str] | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    agent: str | None = None,
    scope: str | None = None,
    clock: Clock | None = None,
) -> AsyncStandfast:
    """Open the store for an event loop: `async with standfast.aopen() as sf`, the same names, awaited."""
    from standfast.aio import AsyncStandfast

    return AsyncStandfast(lambda: open(url, data_dir=data_dir, agent=agent, scope=scope, clock=clock))


def session(key: str, *, agent: str | None = None, scope: str | None = None) -> Session:
    """Open the store and a session in one line: `with standfast.session("fix-42", agent="coder") as s`.

    The same key resumes it. `s.store` is the handle; it is closed with the session.
    """
    modules.load("standfast.record.open_session")
    from standfast.record.open_session import Session

    return Session(None, key, agent=agent, connect=lambda: open(agent=agent, scope=scope))


def connect(
    settings: config.Settings,
    *,
    clock: Clock | None = None,
    as_actor: bool = False,
    pid: int | None = None,
    on_create: Callable[[], None] | None = None,
    register: bool = True,
) -> Standfast:
    """Open the store of `settings`. `as_actor` is for shells: the leases of a command outlive it.

    With `pid`, the process of that pid holds the leases of this handle. `on_create` is called before a store is
    created, in place of the check that none is remembered here. Without `register` the caller's first transaction looks
    up its repository: see `repositories.join`.
    """
    clock = clock or clocks.SYSTEM
    temporary = _temporary() if settings.target.location == config.MEMORY else None

    def identify() -> str:
        if pid is not None:
            return str(process(pid, clock))
        return actor_holder(settings.actor) if as_actor else this_process(clock)

    caller = Caller(actor=settings.actor, holder=identify(), scope=settings.scope, clock=clock, label=settings.label)
    location = os.path.join(temporary, "standfast.db") if temporary else settings.target.location
    remembered_at = store_memory.place_of(settings.target)
    opened: list[Store] = []

    def refuse_creation() -> None:
        """The first open may create a store where none is remembered; a reopen never creates one."""
        if opened:
            raise store_memory.missing(settings.target.shown)
        if on_create is not None:
            on_create()
        else:
            store_memory.refuse_missing(remembered_at)

    def connect_engine(caller: Caller) -> Engine:
        engine = _open_engine(settings, location, caller, refuse_creation)
        return _settled(settings, engine, lambda: _open_engine(settings, location, caller, refuse_creation))

    def connect_store() -> Store:
        made = Store(connect_engine, caller, identify)
        made.shown = settings.target.shown
        made.memory = None if made.engine.copy_of else store_memory.memory_of(*made.pin, remembered_at)
        return made

    try:
        store = connect_store()
        if _went_back(store):
            store.close()
            store = connect_store()
    except BaseException:
        _remove(temporary)
        raise
    opened.append(store)
    if store.memory is not None:
        store.memory.opened(clock.now_us())
    store.notify = settings.options.notify
    store.data_dir = temporary or settings.data_dir
    store.artifact_max_bytes = settings.options.artifact_max_bytes
    store.artifact_bucket = settings.options.artifact_bucket
    store.redact = settings.options.redact
    store.copies = settings.options.copies
    if register:
        caller.repository = "" if settings.outside else repositories.known(store, caller)
    log.info("opened %s, store %s", store.shown, store.pin[0])
    return Standfast(settings, store, temporary)


def _went_back(store: Store) -> bool:
    """Open the gap if the store lacks the row that this host saw last, or if it took the place of another store. True
    if the gap was opened: the store has a new epoch then."""
    if store.memory is None or store.engine.standby:
        return False
    before = store.memory.in_place_of()
    if before:
        from standfast.admin.restore_gap import took_place

        return took_place(store, before)
    seq, hash = store.memory.noted()
    if not seq:
        return False
    from standfast.core.journal import remembered

    if store.read(lambda tx: remembered(tx, seq, hash)):
        return False
    from standfast.admin.restore_gap import gone_back

    return gone_back(store)


def _settled(settings: config.Settings, engine: Engine, again: Callable[[], Engine]) -> Engine:
    """The engine. If the store was moved by a process that died, the move is finished or undone first. A mark in a
    restored copy is ignored: the copy was taken during a move."""
    if not engine.moved or engine.copy_of:
        return engine
    from standfast.admin import move

    move.ended(engine)
    move.resolve(settings, engine.moved)
    return again()


def _open_engine(
    settings: config.Settings, location: str, caller: Caller, on_create: Callable[[], None] = lambda: None
) -> Engine:
    unsafe = settings.options.unsafe_storage

    def copied(store_id: str, found: int, latest: int) -> None:
        from standfast.admin.copies.automatic import before_migration

        before_migration(settings, store_id, found, latest)

    def rescued(store_id: str, save: Callable[[str], object]) -> str:
        from standfast.admin.copies.automatic import rescue

        return rescue(settings, store_id, save)

    if settings.target.engine == "postgres":
        modules.load("standfast.db.postgres.registry")
        from standfast.db.postgres.registry import open_engine as open_postgres

        return open_postgres(location, caller, allow_unsafe=unsafe, on_create=on_create, on_migrate=copied)
    modules.load("standfast.db.sqlite.registry")
    from standfast.db.sqlite.registry import open_engine as open_sqlite

    return open_sqlite(
        location, caller, allow_unsafe=unsafe, on_create=on_create, on_migrate=copied, on_removed=rescued
    )


class LazyResource(Generic[R]):
    """A resource of the handle. On first use, `modules.load` imports its class on a thread of its own."""

    def __init__(self, place: str) -> None:
        self._module, _, self._name = place.partition(":")
        self._kind: type[R] | None = None

    @overload
    def __get__(self, handle: None, owner: object) -> Self: ...
    @overload
    def __get__(self, handle: Resources, owner: object) -> R: ...
    def __get__(self, handle: Resources | None, owner: object) -> Self | R:
        if handle is None:
            return self
        if self._kind is None:
            modules.load(self._module)
            self._kind = getattr(import_module(self._module), self._name)
        resource: R = handle._resource(self._kind)
        return resource

    def __set__(self, handle: Resources, value: object) -> None:
        raise AttributeError(f"{self._name} of a store cannot be set")


class Resources:
    """The resources of a handle; each is imported on first use."""

    agents: LazyResource[Agents] = LazyResource("standfast.record.agents:Agents")
    approvals: LazyResource[Approvals] = LazyResource("standfast.ledger.approvals:Approvals")
    gates: LazyResource[Gates] = LazyResource("standfast.ledger.gates:Gates")
    sessions: LazyResource[Sessions] = LazyResource("standfast.record.sessions:Sessions")
    state: LazyResource[State] = LazyResource("standfast.record.state:State")
    effects: LazyResource[Effects] = LazyResource("standfast.ledger.effects.resource:Effects")
    tasks: LazyResource[Tasks] = LazyResource("standfast.record.tasks:Tasks")
    items: LazyResource[Items] = LazyResource("standfast.record.items:Items")
    threads: LazyResource[Threads] = LazyResource("standfast.record.threads:Threads")
    copies: LazyResource[Copies] = LazyResource("standfast.admin.copies.resource:Copies")
    removed: LazyResource[Removed] = LazyResource("standfast.admin.undo:Removed")
    events: LazyResource[Events] = LazyResource("standfast.record.events:Events")
    webhooks: LazyResource[Webhooks] = LazyResource("standfast.ledger.webhooks:Webhooks")
    credits: LazyResource[Credits] = LazyResource("standfast.ledger.credits:Credits")
    budgets: LazyResource[Budgets] = LazyResource("standfast.ledger.budgets:Budgets")
    usage: LazyResource[Usage] = LazyResource("standfast.views.usage:Usage")
    mail: LazyResource[Mails] = LazyResource("standfast.record.mail:Mails")
    loops: LazyResource[Loops] = LazyResource("standfast.record.loops:Loops")
    runs: LazyResource[Runs] = LazyResource("standfast.record.loops.runs:Runs")
    recovery: LazyResource[Recovery] = LazyResource("standfast.views.recovery:Recovery")
    search_index: LazyResource[SearchIndex] = LazyResource("standfast.checkpoint.search_index:SearchIndex")
    artifacts: LazyResource[Artifacts] = LazyResource("standfast.core.artifacts:Artifacts")
    checkpoints: LazyResource[Checkpoints] = LazyResource("standfast.checkpoint.checkpoints:Checkpoints")
    decisions: LazyResource[Decisions] = LazyResource("standfast.ledger.decisions:Decisions")
    imports: LazyResource[Imports] = LazyResource("standfast.interchange.imports:Imports")
    journal: LazyResource[Journal] = LazyResource("standfast.core.journal:Journal")
    knowledge: LazyResource[KnowledgeStore] = LazyResource("standfast.record.knowledge:KnowledgeStore")
    leases: LazyResource[Leases] = LazyResource("standfast.core.leases:Leases")

    def __init__(self, store: Store, tx: Tx | None = None) -> None:
        self._store = store
        self._tx = tx
        self._resources: dict[type[Resource], Resource] = {}

    if not TYPE_CHECKING:  # a type checker must refuse unknown names

        def __getattr__(self, name: str) -> Any:
            from standfast.record.open_session import Session

            known = hasattr(Session, name) and not name.startswith("_")
            hint = f"a session has it. Write `with sf.session(key) as s:` and s.{name}" if known else ""
            raise NoAttribute(f"{type(self).__name__!r} object", name, dir(self), hint)

    def _resource(self, kind: type[R]) -> R:
        resource = self._resources.get(kind)
        if resource is None:
            resource = self._resources[kind] = kind(self._store, self._tx)
        assert isinstance(resource, kind)
        return resource

    def timeline(
        self,
        at: Time = "now",
        *,
        window: Duration = "1h",
        start: Time | None = None,
        end: Time | None = None,
        session: str | None = None,
        agent: str | None = None,
        subject: str | None = None,
        type: str | None = None,
        problems: bool = False,
        everywhere: bool | None = None,
        limit: int = 500,
    ) -> Timeline:
        """The events around a time, `sf.timeline(at="tue 03:00")`, or from `start` to `end`."""
        modules.load("standfast.views.timeline")
        from standfast.views.timeline import Timelines

        return self._resource(Timelines).around(
            at,
            window=window,
            start=start,
            end=end,
            session=session,
            agent=agent,
            subject=subject,
            type=type,
            problems=problems,
            everywhere=everywhere,
            limit=limit,
        )

    def brief(self, *, agent: str | None = None, max_tokens: int = 1500, everywhere: bool | None = None) -> Brief:
        """A summary for an agent that starts, of at most `max_tokens`: `print(sf.brief().markdown)`."""
        modules.load("standfast.views.brief")
        from standfast.views.brief import Briefs

        return self._resource(Briefs).make(agent=agent, max_tokens=max_tokens, everywhere=everywhere)

    def search(
        self,
        text: str,
        *,
        agent: str | None = None,
        repo: str | None = None,
        since: Time | None = None,
        tool: str | None = None,
        role: str | None = None,
        kind: str | None = None,
        session: str | None = None,
        everywhere: bool = False,
        by_rank: bool = False,
        after: str | None = None,
        limit: int = 50,
        progress: Callable[[int], object] = lambda count: None,
    ) -> Hits:
        """Words in messages, decisions, tool calls, mail and tasks, the newest first: `sf.search("flaky parser")`."""
        modules.load("standfast.views.search")
        from standfast.views.search import Search

        return self._resource(Search).find(
            text,
            agent=agent,
            repo=repo,
            since=since,
            tool=tool,
            role=role,
            kind=kind,
            session=session,
            everywhere=everywhere,
            by_rank=by_rank,
            after=after,
            limit=limit,
            progress=progress,
        )


class Transaction(Resources):
    """The resources inside one transaction. Their results are acknowledged when the block has ended."""


class Standfast(Resources):
    """An open store."""

    def __init__(self, settings: config.Settings, store: Store, temporary: str | None = None) -> None:
        super().__init__(store)
        self.settings = settings
        self._temporary = temporary

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Everything in the block is committed together, or not at all. At most 5 seconds; never rerun."""
        with self._store.transaction() as tx:
            yield Transaction(self._store, tx)

    def session(self, key: str, *, agent: str | None = None) -> Session:
        """Work that outlives this process: `with sf.session("fix-42") as s`. The same key resumes it.

        Entering raises InProgress while a live holder has it.
        """
        modules.load("standfast.record.open_session")
        from standfast.record.open_session import Session

        return Session(self._store, key, agent=agent, handle=self)

    def apply(
        self, spec: Mapping[str, Any] | str | os.PathLike[str], *, key: str | None = None, mode: str = "dry-run"
    ) -> Applied:
        """The changes that a specification (a mapping, or the path of a TOML or JSON file) would make. Nothing is
        written.

        With mode="commit", all of it or nothing, once per `key`; the same key and specification again is
        answered from the record. Raises KeyConflict for another specification under the key.
        """
        modules.load("standfast.record.apply")
        from standfast.record.apply import apply, read, read_file

        made = read(spec) if isinstance(spec, Mapping) else read_file(os.fspath(spec))
        return apply(self._store, made, key=key, mode=mode)

    def backup(self, to: str | os.PathLike[str] | None = None, *, note: str | None = None) -> Copy:
        """Take a copy of the store and verify it: `sf.backup("/mnt/nas/agents")`. Writers continue meanwhile.

        `to` is a directory or s3://BUCKET/NAME; by default a directory outside the data directory. Raises
        StorageError naming the copy; then there is none.
        """
        return self.copies.take(to=None if to is None else os.fspath(to), note=note)

    def undo(self, what: str | Receipt | None = None, *, agent: str | None = None, since: Time | None = None) -> Undone:
        """Put back what a change overwrote or deleted: `sf.undo(task.receipt)`, or all by an agent since a time.

        `what` is a receipt, a sequence number, or an id, whose newest change is undone. Raises Conflict naming who
        changed the row since; then nothing was changed. An undo is a change too: it can be undone.
        """
        return self.removed.undo(None if what is None else str(what), agent=agent, since=since)

    @overload
    def export(
        self, *sessions: str, to: str | os.PathLike[str], hand_over: bool = False, progress: Progress = quiet
    ) -> Bundle: ...

    @overload
    def export(
        self, *, text: str | os.PathLike[str], check: bool = False, progress: Progress = quiet
    ) -> TextExport: ...

    def export(
        self,
        *sessions: str,
        to: str | os.PathLike[str] | None = None,
        hand_over: bool = False,
        text: str | os.PathLike[str] | None = None,
        check: bool = False,
        progress: Progress = quiet,
    ) -> Bundle | TextExport:
        """Write sessions as a bundle, `sf.export("fix-42", to="fix-42.zip")`, or a repository as text for git.

        With `hand_over` the sessions continue elsewhere, and this store refuses to open them.
        `sf.export(text="record")` replaces only files that differ; with `check` it only names them.
        """
        if (to is None) == (text is None):
            raise InvalidInput("export takes sessions and `to`, or `text`", 'sf.export("fix-42", to="fix-42.zip")')
        if to is not None:
            modules.load("standfast.interchange.bundle_export")
            from standfast.interchange import bundle_export

            return bundle_export.export(self._store, sessions, os.fspath(to), hand_over=hand_over, progress=progress)
        assert text is not None
        modules.load("standfast.interchange.text_export")
        from standfast.interchange import text_export

        return text_export.export(self._store, os.fspath(text), check=check, progress=progress)

    @property
    def engine(self) -> Engine:
        return self._store.engine

    @property
    def scope(self) -> str:
        return self._store.caller.scope

    @property
    def agent(self) -> str:
        """The name under which this handle records."""
        return self._store.caller.actor

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run a function of a transaction on one snapshot, for queries that have no method."""
        return self._store.read(body)

    def rows(self, text: str, params: dict[str, object] | None = None) -> Iterator[Row]:
        """Stream a read-only query, an object by column name for each row."""
        return self._store.rows(text, params)

    def close(self) -> None:
        """Close the store in this process. Leases that the process holds end when it exits."""
        if not self._store.closed:
            if self._store.written:
                _remember(self._store)
            self._store.close()
            _remove(self._temporary)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker must refuse it

        async def __aenter__(self) -> Self:
            self.close()
            raise InvalidInput("standfast.open() is entered with `with`", "async with standfast.aopen() as sf: …")

        async def __aexit__(self, *exc: object) -> None:
            """Python looks for it before it enters."""

    def __repr__(self) -> str:
        return f"<Standfast {self.settings.target.shown}>"


def _remember(store: Store) -> None:
    """Note the newest journal row in the memory of stores, if it is durable. An error does not make closing fail."""
    if store.memory is None:
        return
    from standfast.core.journal import remember_own

    with suppress(StandfastError):
        remember_own(store)


def _temporary() -> str:
    import tempfile

    return tempfile.mkdtemp(prefix="standfast-")


def _remove(directory: str | None) -> None:
    if directory is not None:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)
