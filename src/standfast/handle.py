"""The handle: one open store, with its rooms.

`open()` decides the store by `config` (nothing to set up: no URL means a file in the data
directory) and returns a `Standfast`. Its attributes are the rooms: `sf.leases`, `sf.journal`.
`with sf.transaction() as tx:` gives the same rooms inside one transaction: several changes
happen together or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from standfast import clock as clocks
from standfast import config, log, modules
from standfast.db import store_memory
from standfast.db.contract import Caller, Engine, Row, Tx
from standfast.db.store import Room, Store
from standfast.errors import StandfastError
from standfast.footings import repositories
from standfast.footings.leases import actor_holder, process, this_process

if TYPE_CHECKING:
    from standfast.aio import AsyncStandfast
    from standfast.checkpoint.checkpoints import Checkpoints
    from standfast.checkpoint.search_index import SearchIndex
    from standfast.clock import Clock
    from standfast.footings.artifacts import Artifacts
    from standfast.footings.journal import Journal
    from standfast.footings.leases import Leases
    from standfast.interchange.imports import Imports
    from standfast.ledger.approvals import Approvals
    from standfast.ledger.credits import Credits
    from standfast.ledger.decisions import Decisions
    from standfast.ledger.effects.room import Effects
    from standfast.ledger.gates import Gates
    from standfast.ledger.webhooks import Webhooks
    from standfast.record.agents import Agents
    from standfast.record.apply import Applied
    from standfast.record.events import Events
    from standfast.record.items import Items
    from standfast.record.live import Session
    from standfast.record.loops import Loops
    from standfast.record.mail import Mails
    from standfast.record.runs import Runs
    from standfast.record.sessions import Sessions
    from standfast.record.state import State
    from standfast.record.tasks import Tasks
    from standfast.record.threads import Threads
    from standfast.views.brief import Brief
    from standfast.views.recovery import Recovery
    from standfast.views.search import Hits
    from standfast.views.timeline import Timeline

T = TypeVar("T")
R = TypeVar("R", bound=Room)


def open(
    url: str | os.PathLike[str] | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    actor: str | None = None,
    scope: str | None = None,
    clock: Clock | None = None,
) -> Standfast:
    """Open the store; the first time, make it. Thread-safe; use as a context manager or close().

    `url` is a path, or postgresql://…; without it the environment and the configuration decide,
    and in the end a file in the data directory. ":memory:" is a private store removed at close.
    A key names one thing in the store, wherever a program starts; `scope` separates keys on purpose.
    """
    return connect(config.load(url, data_dir=data_dir, actor=actor, scope=scope), clock=clock)


def aopen(
    url: str | os.PathLike[str] | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    actor: str | None = None,
    scope: str | None = None,
    clock: Clock | None = None,
) -> AsyncStandfast:
    """Open the store for an event loop: `async with standfast.aopen() as sf`, the same names, awaited."""
    from standfast.aio import AsyncStandfast

    return AsyncStandfast(lambda: open(url, data_dir=data_dir, actor=actor, scope=scope, clock=clock))


def connect(
    settings: config.Settings,
    *,
    clock: Clock | None = None,
    as_actor: bool = False,
    pid: int | None = None,
    on_create: Callable[[], None] | None = None,
) -> Standfast:
    """Open what `settings` say. `as_actor` is for shells: the leases of a command outlive it.

    With `pid`, what is leased here is held by that process, for whoever starts or watches it. `on_create` is
    called before a store is created, in place of the check that none is remembered here.
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
        return _open_engine(settings, location, caller, refuse_creation)

    try:
        store = Store(connect_engine, caller, identify)
    except BaseException:
        _remove(temporary)
        raise
    opened.append(store)
    store.shown = settings.target.shown
    store.memory = store_memory.memory_of(*store.pin, remembered_at)
    if store.memory is not None:
        store.memory.opened(clock.now_us())
    store.notify = settings.options.notify
    store.data_dir = temporary or settings.data_dir
    store.artifact_max_bytes = settings.options.artifact_max_bytes
    store.redact = settings.options.redact
    caller.repository = "" if settings.outside else repositories.known(store, caller)
    log.info("opened %s, store %s", store.shown, store.pin[0])
    return Standfast(settings, store, temporary)


def _open_engine(
    settings: config.Settings, location: str, caller: Caller, on_create: Callable[[], None] = lambda: None
) -> Engine:
    unsafe = settings.options.unsafe_storage
    if settings.target.engine == "postgres":
        modules.load("standfast.db.postgres.registry")
        from standfast.db.postgres.registry import open_engine as open_postgres

        return open_postgres(location, caller, allow_unsafe=unsafe, on_create=on_create)
    modules.load("standfast.db.sqlite.registry")
    from standfast.db.sqlite.registry import open_engine as open_sqlite

    return open_sqlite(location, caller, allow_unsafe=unsafe, on_create=on_create)


class Rooms:
    """The rooms of the house, each loaded when it is first entered."""

    def __init__(self, store: Store, tx: Tx | None = None) -> None:
        self._store = store
        self._tx = tx
        self._rooms: dict[type[Room], Room] = {}

    def _room(self, kind: type[R]) -> R:
        room = self._rooms.get(kind)
        if room is None:
            room = self._rooms[kind] = kind(self._store, self._tx)
        assert isinstance(room, kind)
        return room

    @property
    def agents(self) -> Agents:
        modules.load("standfast.record.agents")
        from standfast.record.agents import Agents

        return self._room(Agents)

    @property
    def approvals(self) -> Approvals:
        modules.load("standfast.ledger.approvals")
        from standfast.ledger.approvals import Approvals

        return self._room(Approvals)

    @property
    def gates(self) -> Gates:
        modules.load("standfast.ledger.gates")
        from standfast.ledger.gates import Gates

        return self._room(Gates)

    @property
    def sessions(self) -> Sessions:
        modules.load("standfast.record.sessions")
        from standfast.record.sessions import Sessions

        return self._room(Sessions)

    @property
    def state(self) -> State:
        modules.load("standfast.record.state")
        from standfast.record.state import State

        return self._room(State)

    @property
    def effects(self) -> Effects:
        modules.load("standfast.ledger.effects.room")
        from standfast.ledger.effects.room import Effects

        return self._room(Effects)

    @property
    def tasks(self) -> Tasks:
        modules.load("standfast.record.tasks")
        from standfast.record.tasks import Tasks

        return self._room(Tasks)

    @property
    def items(self) -> Items:
        modules.load("standfast.record.items")
        from standfast.record.items import Items

        return self._room(Items)

    @property
    def threads(self) -> Threads:
        modules.load("standfast.record.threads")
        from standfast.record.threads import Threads

        return self._room(Threads)

    @property
    def events(self) -> Events:
        modules.load("standfast.record.events")
        from standfast.record.events import Events

        return self._room(Events)

    @property
    def webhooks(self) -> Webhooks:
        modules.load("standfast.ledger.webhooks")
        from standfast.ledger.webhooks import Webhooks

        return self._room(Webhooks)

    @property
    def credits(self) -> Credits:
        modules.load("standfast.ledger.credits")
        from standfast.ledger.credits import Credits

        return self._room(Credits)

    @property
    def mail(self) -> Mails:
        modules.load("standfast.record.mail")
        from standfast.record.mail import Mails

        return self._room(Mails)

    @property
    def loops(self) -> Loops:
        modules.load("standfast.record.loops")
        from standfast.record.loops import Loops

        return self._room(Loops)

    @property
    def runs(self) -> Runs:
        modules.load("standfast.record.runs")
        from standfast.record.runs import Runs

        return self._room(Runs)

    @property
    def recovery(self) -> Recovery:
        modules.load("standfast.views.recovery")
        from standfast.views.recovery import Recovery

        return self._room(Recovery)

    def timeline(
        self,
        at: str = "now",
        *,
        window: str = "1h",
        session: str | None = None,
        agent: str | None = None,
        subject: str | None = None,
        type: str | None = None,
        everywhere: bool | None = None,
        limit: int = 500,
    ) -> Timeline:
        """What really happened around a moment: `sf.timeline(at="tue 03:00")`."""
        modules.load("standfast.views.timeline")
        from standfast.views.timeline import Timelines

        return self._room(Timelines).around(
            at,
            window=window,
            session=session,
            agent=agent,
            subject=subject,
            type=type,
            everywhere=everywhere,
            limit=limit,
        )

    def brief(self, *, agent: str | None = None, max_tokens: int = 1500, everywhere: bool | None = None) -> Brief:
        """What an agent must know when it starts, within so many tokens: `print(sf.brief().markdown)`."""
        modules.load("standfast.views.brief")
        from standfast.views.brief import Briefs

        return self._room(Briefs).make(agent=agent, max_tokens=max_tokens, everywhere=everywhere)

    def search(
        self,
        text: str,
        *,
        agent: str | None = None,
        repo: str | None = None,
        since: str | None = None,
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

        return self._room(Search).find(
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

        return self._room(SearchIndex)

    @property
    def artifacts(self) -> Artifacts:
        modules.load("standfast.footings.artifacts")
        from standfast.footings.artifacts import Artifacts

        return self._room(Artifacts)

    @property
    def checkpoints(self) -> Checkpoints:
        modules.load("standfast.checkpoint.checkpoints")
        from standfast.checkpoint.checkpoints import Checkpoints

        return self._room(Checkpoints)

    @property
    def decisions(self) -> Decisions:
        modules.load("standfast.ledger.decisions")
        from standfast.ledger.decisions import Decisions

        return self._room(Decisions)

    @property
    def imports(self) -> Imports:
        modules.load("standfast.interchange.imports")
        from standfast.interchange.imports import Imports

        return self._room(Imports)

    @property
    def journal(self) -> Journal:
        modules.load("standfast.footings.journal")
        from standfast.footings.journal import Journal

        return self._room(Journal)

    @property
    def leases(self) -> Leases:
        modules.load("standfast.footings.leases")
        from standfast.footings.leases import Leases

        return self._room(Leases)


class Transaction(Rooms):
    """The rooms inside one transaction. What they return is acknowledged when the block has ended."""


class Standfast(Rooms):
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

        Entering raises InProgress while somebody alive has it.
        """
        modules.load("standfast.record.live")
        from standfast.record.live import Session

        return Session(self._store, key, agent=agent)

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

    @property
    def engine(self) -> Engine:
        return self._store.engine

    @property
    def scope(self) -> str:
        return self._store.caller.scope

    @property
    def actor(self) -> str:
        return self._store.caller.actor

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run a function of a transaction on one snapshot: for what no verb answers."""
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

    def __repr__(self) -> str:
        return f"<Standfast {self.settings.target.shown}>"


def _remember(store: Store) -> None:
    """Note the newest journal row in the memory of stores, if it is durable. Closing never fails for it."""
    if store.memory is None:
        return
    from standfast.footings.journal import remember

    with suppress(StandfastError):
        remember(store)


def _temporary() -> str:
    import tempfile

    return tempfile.mkdtemp(prefix="standfast-")


def _remove(directory: str | None) -> None:
    if directory is not None:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)
