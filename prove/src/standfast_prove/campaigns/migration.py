"""Work in progress of every kind is interrupted, migrated from each older schema, and resumed.

A process of an older schema leaves work behind and is killed. A process of the newest schema opens the store and is
killed at a statement of the migration, or at one of its crash points; perhaps the next process too. Then the store
has the old schema or the new one, nothing in between. The next process finds all pending work and finishes it as if
no process had been killed. A process of the old schema that was open all the time is refused at its next write.

The product has one migration. The later ones are the campaign's own: a column, a table filled from another one, and a
change that refuses older writers.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import standfast
from standfast import config, crash, handle
from standfast.clock import HOUR_US, SYSTEM, Clock, SystemClock
from standfast.db.migrations import LATEST, MIGRATIONS
from standfast.db.migrations.migration import Migration
from standfast.errors import SchemaTooNew
from standfast_prove.campaigns.boot import engine_of
from standfast_prove.campaigns.pending import SCENES, World, make_pending
from standfast_prove.campaigns.warm import warmed
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.rows import Oracle, integrity, noted
from standfast_prove.mutants.patching import Patching
from standfast_prove.outcome import Outcome

HERE = "standfast_prove.campaigns.migration:"
SCOPE = "here"
LATER = (
    Migration(
        LATEST + 1, "columns", "ALTER TABLE effect ADD COLUMN later TEXT;\nALTER TABLE mail ADD COLUMN later TEXT;"
    ),
    Migration(
        LATEST + 2,
        "a table filled from another",
        "CREATE TABLE later_task (id TEXT NOT NULL PRIMARY KEY, title TEXT) STRICT;\n"
        "INSERT INTO later_task (id, title) SELECT id, title FROM task;",
    ),
    Migration(
        LATEST + 3,
        "a fence",
        "UPDATE effect SET later = tool;\nCREATE INDEX effect_later ON effect (later);",
        min_writer=LATEST + 3,
    ),
)
HISTORY = MIGRATIONS + LATER
LAST = HISTORY[-1].version
PATIENCE_S = 300.0


def run(place: Path, *, seed: int, url: str | None = None, schedules: int = 20, torn: bool = False) -> Outcome:
    """The seed chooses one old schema. Its migration is killed at `schedules` places. With `torn`, the control, the
    migration commits after each statement.
    """
    outcome, draw, found = Outcome("migration"), random.Random(seed), LATEST + seed % len(LATER)
    with Nursery(words=place / "words") as nursery:
        warmed(nursery, postgres=url is not None)
        stores: _Files | _Databases = _Files(place) if url is None else _Databases(place, url)
        with stores:
            scene = _Scene(nursery, stores, found, torn)
            try:
                scene.build()
                points = scene.play([], outcome)
                outcome.count("schedules")
                for _ in range(schedules - 1):
                    kills = [draw.randint(1, points) for _ in range(draw.choice([1, 1, 1, 2]))]
                    scene.play(kills, outcome, hours=draw.choice([0, 1, 20]))
                    outcome.count("schedules")
            except AssertionError as error:
                outcome.refuse(f"{error} {_words(place)}", f"from schema {found}")
    return outcome


def _words(place: Path) -> str:
    return (place / "words").read_text(errors="replace")[-1500:]


class _Scene:
    """One old store. Each play begins with a copy of it."""

    def __init__(self, nursery: Nursery, stores: _Files | _Databases, found: int, torn: bool) -> None:
        self._nursery, self._stores, self._found, self._torn = nursery, stores, found, torn

    def build(self) -> None:
        url, home = self._stores.template()
        code = self._child("build", url, home, schema=self._found)
        assert code == -9, f"the old process ended with {code}"
        self._stores.built()

    def play(self, kills: list[int], outcome: Outcome, hours: int = 0) -> int:
        """Kill at this statement twice, then restart many hours later. Returns how many statements the migration
        has."""
        url, home = self._stores.copy()
        beside = self._nursery.start(HERE + "beside", url=url, home=str(home), schema=self._found)
        _until(home / "beside", "the old process that stays is not there")
        for kill in kills:
            code = self._child("migrate", url, home, kill=kill, torn=self._torn)
            assert code in (-9, 0), f"the migration ended with {code}"
            outcome.count("kills", int(code == -9))
            version = self._stores.version(url)
            assert version in (self._found, LAST), f"killed at {kill}, the schema is {version}"
        assert self._child("migrate", url, home, kill=0, torn=False) == 0, f"killed at {kills}, it does not migrate"
        (home / "migrated").touch()
        code = self._nursery.wait(beside, PATIENCE_S)
        assert code == 0, f"killed at {kills}: the old process ended with {code}"
        code = self._child("resume", url, home, hours=hours)
        assert code == 0, f"killed at {kills}: no process can continue"
        self._judge(json.loads((home / "found").read_text()), kills)
        outcome.count("pending things ended", len(SCENES))
        self._stores.sound(url)
        return len(noted(home / "passed")) if not kills else 0

    def _judge(self, found: dict[str, Any], kills: list[int]) -> None:
        for name in SCENES:
            wanted = json.loads(json.dumps(SCENES[name].expect))
            assert found[name] == wanted, f"killed at {kills}, {name} ended as {found[name]}, not as {wanted}"

    def _child(self, what: str, url: str, home: Path, **more: object) -> int | None:
        return self._nursery.wait(self._nursery.start(HERE + what, url=url, home=str(home), **more), PATIENCE_S)


def _until(path: Path, words: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < end, words
        time.sleep(0.002)


# -- copies of an old store ----------------------------------------------------------------------------------


class _Files:
    """One directory for each store."""

    def __init__(self, place: Path) -> None:
        self._made, self._work = place / "made", place / "work"

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def template(self) -> tuple[str, Path]:
        self._made.mkdir()
        return str(self._made / "standfast.db"), self._made

    def built(self) -> None: ...

    def copy(self) -> tuple[str, Path]:
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(self._made, self._work)
        return str(self._work / "standfast.db"), self._work

    def version(self, url: str) -> int:
        import apsw

        connection = apsw.Connection(url)
        try:
            listed = connection.execute("SELECT max(version) FROM migration").get
            version = int(connection.execute("PRAGMA user_version").get)
            assert listed == version, f"the list says {listed}, the file {version}"
            return version
        finally:
            connection.close()

    def sound(self, url: str) -> None:
        assert integrity(url) == "ok"


class _Databases:
    """A database per store, copied by the server."""

    def __init__(self, place: Path, url: str) -> None:
        self._place, self._url = place, url
        self._made, self._work = f"{url}_made", f"{url}_work"

    def __enter__(self) -> None:
        import psycopg

        self._admin = psycopg.connect(self._url, autocommit=True)

    def __exit__(self, *_: object) -> None:
        for url in (self._work, self._made):
            self._say(f"DROP DATABASE IF EXISTS {_name(url)} WITH (FORCE)")
        self._admin.close()

    def _say(self, text: str) -> None:
        self._admin.execute(text.encode())

    def template(self) -> tuple[str, Path]:
        (self._place / "made").mkdir()
        self._say(f"CREATE DATABASE {_name(self._made)} TEMPLATE template0 ENCODING 'UTF8'")
        return self._made, self._place / "made"

    def built(self) -> None:
        self._nobody(self._made)

    def _nobody(self, url: str) -> None:
        """Wait until the server has closed the killed client's connection: a database in use cannot be copied."""
        ask = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s"
        end = time.monotonic() + PATIENCE_S
        while (row := self._admin.execute(ask, (_name(url),)).fetchone()) and row[0]:
            assert time.monotonic() < end, "the server keeps a client that is dead"
            time.sleep(0.005)

    def copy(self) -> tuple[str, Path]:
        work = self._place / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(self._place / "made", work)
        self._say(f"DROP DATABASE IF EXISTS {_name(self._work)} WITH (FORCE)")
        self._say(f"CREATE DATABASE {_name(self._work)} TEMPLATE {_name(self._made)}")
        return self._work, work

    def version(self, url: str) -> int:
        import psycopg

        with psycopg.connect(url, options="-c search_path=standfast", autocommit=True) as asking:
            row = asking.execute(
                "SELECT max(version), (SELECT value FROM meta WHERE key = 'schema_version') FROM migration"
            ).fetchone()
        assert row is not None
        assert row[0] == int(row[1]), f"the list says {row[0]}, the store {row[1]}"
        return int(row[0])

    def sound(self, url: str) -> None: ...


def _name(url: str) -> str:
    return url.rpartition("/")[2]


# -- in the children -------------------------------------------------------------------------------------------


@contextmanager
def _opened(
    url: str, home: str, schema: int, *, actor: str = "old", clock: Clock = SYSTEM
) -> Iterator[standfast.Standfast]:
    """Open the store as a version with this schema does."""
    from standfast.core.leases import this_process
    from standfast.db.contract import Caller
    from standfast.db.store import Store

    settings = config.load(url, data_dir=home, actor=actor, scope=SCOPE, outside=True)
    caller = Caller(actor=actor, holder=this_process(clock), scope=SCOPE, clock=clock)
    caller.repository = ""
    with Patching() as patch:
        if "://" in url:
            from standfast.db.postgres import tx

            patch.setattr(tx, "LATEST", schema)
        store = Store(lambda caller: engine_of(url, caller, HISTORY[:schema]), caller, lambda: caller.holder)
        store.data_dir = home
        with handle.Standfast(settings, store) as sf:
            yield sf


def build(url: str, home: str, schema: int) -> None:
    """Leave pending work of every kind in the store, then die."""
    with _opened(url, home, schema) as sf:
        make_pending(sf, World(Path(home)))
        crash.die()


def beside(url: str, home: str, schema: int) -> None:
    """An old process that keeps the store open. It can write until another process migrates. Then its writes are
    refused.
    """
    with _opened(url, home, schema) as sf:
        sf.leases.acquire("beside")
        Path(home, "beside").touch()
        _until(Path(home, "migrated"), "no process migrated")
        try:
            sf.leases.acquire("late")
        except SchemaTooNew:
            return
        raise AssertionError(f"a process of schema {schema} wrote into a store of schema {LAST}")


def migrate(url: str, home: str, kill: int, torn: bool) -> None:
    """Open with today's code; die at the `kill`-th statement or crash point of the migration."""
    passed = Oracle(Path(home) / "passed") if not kill else None
    count = 0

    def at(name: str) -> None:
        nonlocal count
        count += 1
        if passed is not None:
            passed.note(" ".join(name.split())[:60])
        if count == kill:
            crash.die()

    with Patching() as patch, crash.record():
        crash.arm(lambda name: at(name) if name.startswith("migrate.") else None)
        (_watch_server if "://" in url else _watch_file)(patch, at, torn)
        with _opened(url, home, LAST, actor="new"):
            pass


def _watch_file(patch: Patching, at: Callable[[str], None], torn: bool) -> None:
    from standfast.db.sqlite import migrate as module

    def watched(connection: Any, *more: Any) -> None:
        def trace(cursor: Any, text: str, bindings: Any) -> bool:
            at(text)
            return True

        connection.exec_trace = trace
        try:
            before(_Torn(connection) if torn else connection, *more)
        finally:
            connection.exec_trace = None
        at("migrated")

    before: Callable[..., None] = module.migrate
    patch.setattr(module, "migrate", watched)


def _watch_server(patch: Patching, at: Callable[[str], None], torn: bool) -> None:
    from standfast.db.postgres import migrate as module

    def watched(connection: Any, *more: Any) -> None:
        before(_Watched(connection, at, torn), *more)
        at("migrated")

    before: Callable[..., None] = module.migrate
    patch.setattr(module, "migrate", watched)


class _Torn:
    """The control, on SQLite: every statement is committed by itself."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, text: str, *more: Any) -> Any:
        if text in ("BEGIN IMMEDIATE", "COMMIT"):
            text = "SELECT 1"
        return self._connection.execute(text, *more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class _Watched:
    """A connection whose statements are sent one by one."""

    def __init__(self, connection: Any, at: Callable[[str], None], torn: bool) -> None:
        self._connection, self._at, self._torn = connection, at, torn

    def execute(self, text: str | bytes, params: Any = None) -> Any:
        if params is not None or isinstance(text, str):
            self._at(str(text))
            return self._connection.execute(text, params)
        answer = None
        for part in text.split(b";\n"):
            if part.strip():
                self._at(part.decode())
                answer = self._connection.execute(part)
                if self._torn:
                    self._connection.execute("COMMIT AND CHAIN")
                    self._connection.execute("SET LOCAL search_path TO standfast, pg_temp")
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class _Later(SystemClock):
    """A clock that is a number of hours ahead; the machine was awake in these hours."""

    def __init__(self, hours: int) -> None:
        super().__init__()
        self._by_us = hours * HOUR_US

    def now_us(self) -> int:
        return super().now_us() + self._by_us

    def mono_us(self) -> int:
        return super().mono_us() + self._by_us


def resume(url: str, home: str, hours: int) -> None:
    """Today's code finishes the pending work and writes each outcome to a file."""
    found = {}
    with _opened(url, home, LAST, actor="new", clock=_Later(hours)) as sf:
        for name, scene in SCENES.items():
            found[name] = scene.resume(sf, World(Path(home)))
    Path(home, "found").write_text(json.dumps(found))
    with suppress(FileNotFoundError):
        os.unlink(Path(home, "beside"))
