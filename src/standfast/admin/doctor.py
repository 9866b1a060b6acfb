"""The doctor: findings about the health of this store and the safety of its place, with remedies.

Each finding has an id that scripts may rely on, a state, a sentence, and a remedy. A store can be missing, locked,
corrupt, newer than this program, or in an unsafe place. Each case has its own finding, because each needs another
remedy. The doctor creates nothing. `fix` makes only repairs that cannot lose data. No remedy deletes data.

    examine(load, connect)  →  settings, then the place, then the open store, each its findings

`connect` is an argument, because the handle is in a higher layer and cannot be imported here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, Protocol, TypeVar

from standfast import hints, modules
from standfast.clock import SYSTEM
from standfast.config import Settings
from standfast.core import gap
from standfast.core.units import size
from standfast.db import catalogue
from standfast.db.contract import Caller, Engine, Tx
from standfast.db.migrations import MIGRATIONS
from standfast.db.sql import load, statement
from standfast.errors import Busy, Corrupt, InvalidInput, SchemaTooNew, StandfastError, StorageError, UnsafeStorage

SQL = load(__name__)

T = TypeVar("T")
State = Literal["ok", "warn", "error"]

LOG_WARN_BYTES = 64 << 20
CLOCK_WARN_S = 60.0
LOOPS_MAX = 20
SERVER_CLOCK_WARN_S = 5.0

OBJECTS_MAX = 6
_NOT_CHECKED: dict[str, dict[str, str]] = {
    "sqlite": {"the bytes of artifacts": "standfast artifact verify", "receipts": "standfast verify"},
    "postgres": {
        "the server's files": "pg_amcheck",
        "the bytes of artifacts": "standfast artifact verify",
        "receipts": "standfast verify",
    },
}
"""The checks that `doctor` leaves out on each engine, with the command that makes them."""
_KEEP = "stop every process that writes, keep all the files, and restore a copy: standfast restore --to DIR"


class Finding(NamedTuple):
    """The result of one check, with a remedy if it is not ok."""

    id: str
    state: State
    text: str
    remedy: str = ""
    fixed: bool = False
    """`fix` has repaired it."""


class OpenStore(Protocol):
    """The calls that the doctor needs from an open store."""

    @property
    def engine(self) -> Engine: ...
    def read(self, body: Callable[[Tx], T]) -> T: ...
    def close(self) -> None: ...


class Ways(NamedTuple):
    """The options of one examination."""

    fix: bool
    """Repair what can be repaired without losing anything."""
    quick: bool
    """Do not compare indexes with their rows."""
    progress: Callable[[str, int, int], object]
    """Called five times a second while the file is read, with the name of the check, bytes so far, and all bytes."""


def examine(
    load: Callable[[], Settings],
    connect: Callable[[Settings], OpenStore],
    *,
    fix: bool = False,
    quick: bool = False,
    progress: Callable[[str, int, int], object] = lambda doing, done, total: None,
) -> Iterator[Finding]:
    """Yield the findings one by one. With `fix`, make safe repairs."""
    try:
        settings = load()
    except InvalidInput as error:
        yield Finding("config", "error", error.message, error.hint)
        return
    yield Finding("config", "ok", f"{settings.target.shown} ({settings.target.engine}), decided by {settings.where}")
    yield from _project(settings)
    yield _memory(settings)
    if settings.target.engine == "sqlite" and not settings.target.is_memory:
        from standfast.admin import doctor_place

        yield from doctor_place.examine(settings, fix)
        if not os.path.exists(settings.target.location):
            yield _no_file(settings)
            yield from _agents(settings, None)
            return
        try:
            lock = doctor_place.lock(settings.target.location + ".lock")
        except StorageError as error:
            lock = Finding("lock", "error", error.message, "see which file is there, and who owns it: standfast where")
        yield lock
        if lock.state == "error":
            return
    yield from _opened(settings, connect, Ways(fix, quick, progress))


# Settings.


def _stores(count: int) -> str:
    return "1 store is" if count == 1 else f"{count} stores are"


def _memory(settings: Settings) -> Finding:
    """Whether this host can remember the store. If it cannot, a missing store is not detected."""
    from standfast.db import store_memory

    if store_memory.place_of(settings.target) is None:
        return Finding("memory", "ok", "this store is not remembered: it is temporary, or STANDFAST_REMEMBER=0")
    where, problem = store_memory.directory(), store_memory.unwritable()
    if problem:
        remedy = "make it writable, or set XDG_STATE_HOME to a directory that is"
        return Finding("memory", "warn", f"stores are not remembered: {problem}", remedy)
    return Finding("memory", "ok", f"{_stores(len(store_memory.stores()))} remembered in {where}")


def _no_file(settings: Settings) -> Finding:
    from standfast.db import store_memory

    try:
        store_memory.refuse_missing(store_memory.place_of(settings.target))
    except StorageError as error:
        return Finding("store", "error", error.message, error.hint)
    return Finding("store", "ok", "there is no store yet: the first write makes it")


def _project(settings: Settings) -> Iterator[Finding]:
    for choice in settings.choices:
        if choice.state == "untrusted":
            yield Finding(
                "trust", "warn", f"{choice.where} is ignored: not trusted", "read it, then: standfast db trust"
            )
    repository = settings.repository
    if repository is not None and repository.common_dir is None:
        yield Finding(
            "scope",
            "warn",
            f"{os.path.join(repository.root, '.git')} leads nowhere, so this is no repository",
            "repair the worktree with git (git worktree repair), or work in another clone",
        )
    else:
        where = f"scope {settings.scope}: " if settings.scope else ""
        yield Finding("scope", "ok", where + (settings.label.name or "outside any repository"))


# The open store.


def _opened(settings: Settings, connect: Callable[[Settings], OpenStore], ways: Ways) -> Iterator[Finding]:
    try:
        store = connect(settings)
    except StandfastError as error:
        yield _cannot_open(error, settings)
        return
    unchecked = dict(_NOT_CHECKED[store.engine.name])
    if ways.quick:
        unchecked["indexes against their rows"] = "standfast doctor"
    try:
        yield from _inside(store, settings, ways, unchecked)
        yield from _readable("agents", lambda: _agents(settings, store), unchecked)
        words = ", ".join(f"{what} ({how})" for what, how in unchecked.items())
        yield Finding("unchecked", "ok", f"not checked: {words}")
    except StandfastError as error:
        yield _cannot_open(error, settings)
    finally:
        store.close()


def _cannot_open(error: StandfastError, settings: Settings) -> Finding:
    """The finding for a store that could not be opened."""
    text, hint = settings.target.hide(error.message), settings.target.hide(error.hint)
    match error:
        case Busy():
            return Finding("lock", "error", text, hint)
        case SchemaTooNew():
            return Finding("schema", "error", text, hint)
        case UnsafeStorage():
            return Finding("place", "error", text, hint)
        case Corrupt(code="not_a_store"):
            return Finding("store", "error", text, hint)
        case Corrupt(code="schema_damaged"):
            return Finding("schema", "error", text, _KEEP)
        case Corrupt():
            return Finding("integrity", "error", text, _KEEP)
        case StorageError(code="not_writable"):
            return Finding("permissions", "error", text, "make the directory and its files yours and writable")
        case StorageError(code="disk_full"):
            return Finding("disk", "error", text, "free some space; nothing that was acknowledged is lost")
        case _:
            return Finding("store", "error", text, hint)


def _inside(store: OpenStore, settings: Settings, ways: Ways, unchecked: dict[str, str]) -> Iterator[Finding]:
    facts = store.engine.facts()
    versions = ", ".join(
        f"{key.removesuffix('_version')} {facts[key]}" for key in sorted(facts) if key.endswith("_version")
    )
    yield Finding("engine", "ok", f"{store.engine.name}: {versions}" if versions else store.engine.name)
    yield from _schema(store)
    yield from _readable("clock", lambda: [_clock(store)], unchecked)
    yield from _readable("duplicates", lambda: _duplicates(store), unchecked)
    yield from _readable("loops", lambda: _loops(store, settings), unchecked)
    yield from _readable("imports", lambda: _imports(store), unchecked)
    yield from _readable("vectors", lambda: _vectors(store), unchecked)
    yield from _readable("copies", lambda: [_copies(store, settings)], unchecked)
    yield from _readable("gap", lambda: [_gap(store)], unchecked)
    if store.engine.name == "sqlite":
        yield from _inside_a_file(store, facts, ways, settings.target.is_memory)
    else:
        from standfast.admin import server

        yield _held_back(store)
        yield from server.examine(store)


def _readable(what: str, look: Callable[[], Iterable[Finding]], unchecked: dict[str, str]) -> Iterator[Finding]:
    """The findings of `look`. If a table is missing, note that `what` was not checked."""
    try:
        yield from list(look())
    except Corrupt as error:
        if error.code != "schema_damaged":
            raise
        unchecked[what] = "the schema is damaged"


def _agents(settings: Settings, store: OpenStore | None) -> Iterator[Finding]:
    """Findings about the agents of this account, their hooks, and records that wait in a spool."""
    from standfast.admin.agents import doctor
    from standfast.admin.agents.catalogue import AGENTS
    from standfast.interchange.hooks import spool
    from standfast.interchange.hooks.spool_paths import size_bytes

    names = [agent.name for agent in AGENTS]
    known: dict[str, doctor.Facts] = {}
    if store is not None:
        known = store.read(lambda tx: {name: doctor.facts(tx, name) for name in names})
    yield from doctor.examine(known, settings.project_dir)
    own, *others = spool.places(settings.data_dir, settings.project_dir)
    waits = spool.waiting(others)
    if size_bytes(own) > spool.DRAINED_MAX_BYTES:  # a smaller spool is normal: hooks write there
        waits = [own, *waits]
    if waits:
        text = f"records of hooks that could not be stored wait in {', '.join(waits)}"
        yield Finding("spool", "warn", text, "any command stores it: standfast status")


def _schema(store: OpenStore) -> Iterator[Finding]:
    """Every object of the catalogue is there, and each migration applied is the one in this package."""
    dialect = store.engine.name
    found = _objects(store)
    wanted = catalogue.wanted(dialect)
    missing = wanted - found
    if missing:
        gone = {one.name for one in missing if not one.table}
        named = sorted(str(one) for one in missing if one.table not in gone)
        words = ", ".join(named[:OBJECTS_MAX]) + (
            f" and {len(named) - OBJECTS_MAX} more" if named[OBJECTS_MAX:] else ""
        )
        yield Finding("schema", "error", f"damaged: {words} missing", _KEEP)
    else:
        yield _history(store)
    guards = {catalogue.guard(table, change) for table in catalogue.tables() for change in catalogue.CHANGES}
    foreign = [one for one in found - wanted if one.name not in guards]
    if foreign and store.engine.schema_version() <= MIGRATIONS[-1].version:
        theirs = {one.name for one in foreign if not one.table}
        words = ", ".join(
            sorted(f"{one} on {one.table}" if one.table else str(one) for one in foreign if one.table not in theirs)
        )
        yield Finding("foreign", "ok", f"not standfast's, and left alone: {words}")


def _objects(store: OpenStore) -> frozenset[catalogue.Item]:
    rows = store.read(lambda tx: tx.all(statement(catalogue.FOUND[store.engine.name])))
    return frozenset(catalogue.Item(row["kind"], row["name"], row["of"]) for row in rows)


def _history(store: OpenStore) -> Finding:
    """The schema's version, and that each migration applied to it is the one in this package."""
    rows = store.read(lambda tx: tx.all(SQL.migrations))
    ours = {migration.version: migration for migration in MIGRATIONS}
    for row in rows:
        known = ours.get(row["version"])
        if known is not None and known.checksum != row["checksum"]:
            text = f"migration {row['version']} ({row['name']}) is not the one this standfast knows"
            return Finding(
                "schema", "error", text, "this store was made by a changed standfast: use that one, or restore a backup"
            )
    version, latest = max((row["version"] for row in rows), default=0), MIGRATIONS[-1].version
    if version > latest:
        text = f"schema {version} is newer than this standfast knows ({latest}); it may still be written"
        return Finding("schema", "warn", text, modules.UPGRADE)
    mark = catalogue.fingerprint(catalogue.wanted(store.engine.name))
    return Finding("schema", "ok", f"schema {version}, every migration and object is there (fingerprint {mark})")


def _clock(store: OpenStore) -> Finding:
    """Whether the clock of this host, or of the server, agrees with the journal."""

    def body(tx: Tx) -> tuple[int, int]:
        row = tx.maybe(SQL.newest)
        return tx.now_us(), row["time_us"] if row else 0

    before = time.time()
    now_us, last_us = store.read(body)
    here_us = int((before + time.time()) / 2 * 1_000_000)
    if store.engine.name == "postgres" and abs(now_us - here_us) > SERVER_CLOCK_WARN_S * 1_000_000:
        text = f"this host and the server differ by {abs(now_us - here_us) / 1_000_000:.0f} s"
        return Finding("clock", "warn", text, "set both by NTP; leases use the server's clock and are safe")
    if last_us - now_us > CLOCK_WARN_S * 1_000_000:
        text = f"the newest entry is {(last_us - now_us) / 1_000_000:.0f} s in the future: the clock was set back"
        return Finding("clock", "warn", text, "set the clock by NTP; only times in the journal depend on it")
    return Finding("clock", "ok", "agrees with the journal")


def _imports(store: OpenStore) -> Iterator[Finding]:
    """The finding about imports, if there were any."""
    from standfast.interchange.imports import overview

    text = store.read(overview)
    if text is not None:
        yield Finding("imports", "ok", text)


def _vectors(store: OpenStore) -> Iterator[Finding]:
    """Which library compares vectors, if the store has any."""
    from standfast.record.knowledge import VECTORS_MAX

    count, ready = store.read(lambda tx: (tx.one(SQL.vectors)["n"], tx.compares_vectors()))
    sqlite = store.engine.name == "sqlite"
    if count and ready:
        yield Finding(
            "vectors", "ok", f"{'sqlite-vec' if sqlite else 'pgvector'} compares the stored vectors ({count:,})"
        )
    elif count:
        state: State = "warn" if count > VECTORS_MAX else "ok"
        text = f"Python compares the stored vectors ({count:,}): exact, and refused past {VECTORS_MAX:,}"
        yield Finding("vectors", state, text, modules.install("vectors") if sqlite else "CREATE EXTENSION vector")


def _copies(store: OpenStore, settings: Settings) -> Finding:
    """Whether the last verified copy is as young as the configuration asks for."""
    from standfast.admin.copies.resource import newest, stale
    from standfast.clock import format_duration

    found, now_us = store.read(lambda tx: (newest(tx), tx.now_us()))
    if found.taken_us is None:
        return Finding("copies", "ok", "this store has recorded no copy yet: standfast backup")
    problem = stale(found, settings.options.copies.max_age, now_us)
    if problem:
        return Finding("copies", "warn", problem, "standfast backup; hourly: standfast daemon start")
    ages = {"verified": found.verified_us, "tested": found.tested_us}
    shown = [f"{state} {format_duration(now_us - at, parts=1)} ago" for state, at in ages.items() if at is not None]
    return Finding("copies", "ok", f"the last copies: {', '.join(shown)}")


def _gap(store: OpenStore) -> Finding:
    """Whether the store was put back in time, and a person has not closed the gap yet."""
    open_gap = store.read(gap.warning)
    if open_gap:
        return Finding("gap", "warn", open_gap, "standfast restore finish")
    return Finding("gap", "ok", "no gap is open")


def _duplicates(store: OpenStore) -> Iterator[Finding]:
    """Keys that exist without a scope and again in a scope named after a repository."""
    from standfast.admin import duplicates

    twice = store.read(lambda tx: list(duplicates.found(tx)))
    for one in twice:
        text = (
            f"the {one.kind} {one.key!r} exists twice: without a scope, and in the scope {one.scope!r} of a repository"
        )
        yield Finding("duplicates", "warn", text, f"compare both: {'; '.join(one.commands)}")
    if not twice:
        yield Finding("duplicates", "ok", "no key exists twice because of a repository's name")


def _loops(store: OpenStore, settings: Settings) -> Iterator[Finding]:
    """Whether every due slot of every loop has its row. The schedules say which slots were due."""
    from standfast.config.actor import account
    from standfast.record.loops import fire, schedule
    from standfast.record.loops.models import ON_TIME_US

    late = store.read(lambda tx: fire.absent(tx, "", everywhere=True, limit=LOOPS_MAX))
    for one in late:
        span = f"{one.slots} slots since" if one.slots > 1 else "the slot of"
        since = schedule.shown(one.slot_us, one.zone)
        text = f"the loop {one.name!r} did not run: {fire.ABSENT}, {span} {since}"
        then = "is the daemon running? standfast daemon status"
        if one.account not in (account(), *settings.options.accounts):
            why, then = fire.who_runs(one.account)
            text = f"{text}; {why}"
        yield Finding("loops", "warn", text, then)
    ahead = store.read(lambda tx: tx.all(SQL.ahead, late_us=tx.now_us() + ON_TIME_US, limit=LOOPS_MAX))
    for row in ahead:
        text = f"the loop {row['name']!r} waits: the clock was ahead, to {schedule.shown(row['last_slot_us'])}"
        yield Finding("loops", "warn", text, hints.command("loop", "resume", row["name"]))
    if not late and not ahead:
        yield Finding("loops", "ok", "every slot that was due has its row")


def _inside_a_file(store: OpenStore, facts: dict[str, object], ways: Ways, temporary: bool) -> Iterator[Finding]:
    log_bytes, file_bytes = int(str(facts["wal_bytes"])), int(str(facts["size_bytes"]))
    if log_bytes > LOG_WARN_BYTES:
        remedy = "end the process that keeps an old read open; the next writes give the space back"
        yield Finding("wal", "warn", f"the log has grown to {size(log_bytes)}", remedy)
    else:
        yield Finding("wal", "ok", f"the log has {size(log_bytes)}, the file {size(file_bytes)}")
    yield _guards(store, ways.fix)
    if not temporary:
        yield _integrity(str(facts["path"]), file_bytes, ways)


def _guards(store: OpenStore, fix: bool) -> Finding:
    """Every table of ours refuses other programs' writes. Other tables are not ours to guard."""
    from standfast.db.sqlite.migrate import guard_trigger

    tables = {one.name for one in _objects(store) if one.kind == "table"}
    rows = store.read(lambda tx: tx.all(statement(catalogue.TRIGGERS)))
    triggers = {row["name"]: row["sql"] for row in rows}
    missing = [
        (table, change)
        for table in catalogue.tables()
        for change in catalogue.CHANGES
        if table in tables and triggers.get(catalogue.guard(table, change)) != guard_trigger(table, change)
    ]
    if not missing:
        return Finding("guard", "ok", "other programs can read every table of standfast and write none")
    text = f"other programs could write {', '.join(sorted({table for table, _ in missing}))}"
    if not fix:
        return Finding("guard", "warn", text, "standfast doctor --fix")

    def restore(tx: Tx) -> None:
        for table, change in missing:
            tx.run(statement(f"DROP TRIGGER IF EXISTS {catalogue.guard(table, change)}"))  # this guard does not refuse
            tx.run(statement(guard_trigger(table, change)))

    store.engine.write(restore, Caller(actor="doctor", holder="doctor", scope="", clock=SYSTEM))
    return Finding("guard", "ok", f"{text}; guarded again", fixed=True)


def _integrity(path: str, file_bytes: int, ways: Ways) -> Finding:
    from standfast.db.sqlite import integrity

    said = integrity.check(path, quick=ways.quick, progress=ways.progress)
    if said:
        return Finding("integrity", "error", f"the file is damaged: {'; '.join(said[:3])}", _KEEP)
    pages = f"read through ({size(file_bytes)}): every page is sound"
    return Finding("integrity", "ok", pages if ways.quick else f"{pages}, every index has its rows")


def _held_back(store: OpenStore) -> Finding:
    """Whether an old open transaction of any database on the server delays the readers of the journal."""
    said = store.engine.held_back()
    if said:
        text, _, remedy = said.partition("; ")
        return Finding("journal", "warn", text, remedy)
    return Finding("journal", "ok", "no old transaction holds back its readers")
