"""The handle: one open store, with its resources.

`open()` decides the store by `config` (nothing to set up: no URL means a file in the data
directory) and returns a `Standfast`. Its attributes are the resources: `sf.leases`, `sf.journal`.
`with sf.transaction() as tx:` gives the same resources inside one transaction: several changes
happen together or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

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
    from standfast.record.mail import Mails
    from standfast.record.open_session import Session
    from standfast.record.runs import Runs
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

    `url` is a path, or postgresql://…; without it the environment and the configuration decide,
    and in the end a file in the data directory. ":memory:" is a private store removed at close.
    A key names one thing in the store, wherever a program starts; `scope` separates keys on purpose. `agent` is the
    name under which everything is recorded, and the address of its mail.
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
    """Open what `settings` say. `as_actor` is for shells: the leases of a command outlive it.

    With `pid`, that process holds the leases of this handle: for a caller that starts or watches it. `on_create` is
    called before a store is created, in place of the check that none is remembered here. Without `register` the
    caller's first transaction looks up its repository: see `repositories.join`.
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
    """Whether the store lacks the row that this host saw last, or took the place of another store: then its gap was
    opened, in the next epoch."""
    if store.memory is None or store.engine.standby:
        return False
    before = store.memory.in_place_of()
    if before:
        from standfast.admin.gap_changes import took_place

        return took_place(store, before)
    seq, hash = store.memory.noted()
    if not seq:
        return False
    from standfast.core.journal import remembered

    if store.read(lambda tx: remembered(tx, seq, hash)):
        return False
    from standfast.admin.gap_changes import gone_back

    return gone_back(store)


def _settled(settings: config.Settings, engine: Engine, again: Callable[[], Engine]) -> Engine:
    """The engine, unless its store moved. The move of a dead process is finished or undone first."""
    if not engine.moved:
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


class Resources:
    """The resources of a handle; each is imported on first use."""

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

    @property
    def agents(self) -> Agents:
        modules.load("standfast.record.agents")
        from standfast.record.agents import Agents

        return self._resource(Agents)

    @property
    def approvals(self) -> Approvals:
        modules.load("standfast.ledger.approvals")
        from standfast.ledger.approvals import Approvals

        return self._resource(Approvals)

    @property
    def gates(self) -> Gates:
        modules.load("standfast.ledger.gates")
        from standfast.ledger.gates import Gates

        return self._resource(Gates)

    @property
    def sessions(self) -> Sessions:
        modules.load("standfast.record.sessions")
        from standfast.record.sessions import Sessions

        return self._resource(Sessions)

    @property
    def state(self) -> State:
        modules.load("standfast.record.state")
        from standfast.record.state import State

        return self._resource(State)

    @property
    def effects(self) -> Effects:
        modules.load("standfast.ledger.effects.resource")
        from standfast.ledger.effects.resource import Effects

        return self._resource(Effects)

    @property
    def tasks(self) -> Tasks:
        modules.load("standfast.record.tasks")
        from standfast.record.tasks import Tasks

        return self._resource(Tasks)

    @property
    def items(self) -> Items:
        modules.load("standfast.record.items")
        from standfast.record.items import Items

        return self._resource(Items)

    @property
    def threads(self) -> Threads:
        modules.load("standfast.record.threads")
        from standfast.record.threads import Threads

        return self._resource(Threads)

    @property
    def copies(self) -> Copies:
        modules.load("standfast.admin.copies.resource")
        from standfast.admin.copies.resource import Copies

        return self._resource(Copies)

    @property
    def removed(self) -> Removed:
        modules.load("standfast.admin.undo")
        from standfast.admin.undo import Removed

        return self._resource(Removed)

    @property
    def events(self) -> Events:
        modules.load("standfast.record.events")
        from standfast.record.events import Events

        return self._resource(Events)

    @property
    def webhooks(self) -> Webhooks:
        modules.load("standfast.ledger.webhooks")
        from standfast.ledger.webhooks import Webhooks

        return self._resource(Webhooks)

    @property
    def credits(self) -> Credits:
        modules.load("standfast.ledger.credits")
        from standfast.ledger.credits import Credits

        return self._resource(Credits)

    @property
    def budgets(self) -> Budgets:
        modules.load("standfast.ledger.budgets")
        from standfast.ledger.budgets import Budgets

        return self._resource(Budgets)

    @property
    def usage(self) -> Usage:
        modules.load("standfast.views.usage")
        from standfast.views.usage import Usage

        return self._resource(Usage)

    @property
    def mail(self) -> Mails:
        modules.load("standfast.record.mail")
        from standfast.record.mail import Mails

        return self._resource(Mails)

    @property
    def loops(self) -> Loops:
        modules.load("standfast.record.loops")
        from standfast.record.loops import Loops

        return self._resource(Loops)

    @property
    def runs(self) -> Runs:
        modules.load("standfast.record.runs")
        from standfast.record.runs import Runs

        return self._resource(Runs)

    @property
    def recovery(self) -> Recovery:
        modules.load("standfast.views.recovery")
        from standfast.views.recovery import Recovery

        return self._resource(Recovery)

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
        """What happened around a time, `sf.timeline(at="tue 03:00")`, or from `start` to `end`."""
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
        """What an agent must know when it starts, within so many tokens: `print(sf.brief().markdown)`."""
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

    @property
    def search_index(self) -> SearchIndex:
        modules.load("standfast.checkpoint.search_index")
        from standfast.checkpoint.search_index import SearchIndex

        return self._resource(SearchIndex)

    @property
    def artifacts(self) -> Artifacts:
        modules.load("standfast.core.artifacts")
        from standfast.core.artifacts import Artifacts

        return self._resource(Artifacts)

    @property
    def checkpoints(self) -> Checkpoints:
        modules.load("standfast.checkpoint.checkpoints")
        from standfast.checkpoint.checkpoints import Checkpoints

        return self._resource(Checkpoints)

    @property
    def decisions(self) -> Decisions:
        modules.load("standfast.ledger.decisions")
        from standfast.ledger.decisions import Decisions

        return self._resource(Decisions)

    @property
    def imports(self) -> Imports:
        modules.load("standfast.interchange.imports")
        from standfast.interchange.imports import Imports

        return self._resource(Imports)

    @property
    def journal(self) -> Journal:
        modules.load("standfast.core.journal")
        from standfast.core.journal import Journal

        return self._resource(Journal)

    @property
    def knowledge(self) -> KnowledgeStore:
        modules.load("standfast.record.knowledge")
        from standfast.record.knowledge import KnowledgeStore

        return self._resource(KnowledgeStore)

    @property
    def leases(self) -> Leases:
        modules.load("standfast.core.leases")
        from standfast.core.leases import Leases

        return self._resource(Leases)


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
        """What a specification (a mapping, or the path of a TOML or JSON file) would change; nothing is written.

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

        `what` is a receipt, a sequence number or an id: of an id, its newest change. Raises Conflict naming who changed
        the row since; then nothing was changed. An undo is a change too: it can be undone.
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
        """Run a function of a transaction on one snapshot: for what no method answers."""
        return self._store.read(body)

    def rows(self, text: str, params: dict[str, object] | None = None) -> Iterator[Row]:
        """Stream a read-only query, an object by column name for each row."""
        return self._store.rows(text, params)

    def close(self) -> None:
        """Give back what this process holds in memory. Leases of a process end with it."""
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
    """Note the newest journal row in the memory of stores, if it is durable. Closing never fails for it."""
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
