"""A store is put back to a random earlier state, and its agents run again from the top.

Two agents send effects until they are killed. The store is saved, and the agents continue. One of these tools then
restores the saved state. The agents run again, are killed again, and at last run to their end.

    here          standfast backup, and restore --here; the replaced store can still be read
    here, lost    the same after the store was deleted
    cp            the files of SQLite, or the database of PostgreSQL, copied without a command of standfast
    PITR          a base backup of the server, and its WAL up to a restore point
    failover      a standby that had not received the newest WAL is promoted, and the primary is dead

The oracle is a file outside the store, with one line for each request that arrived. An effect that arrived is replayed,
found by its probe, or in doubt. A person then resolves each doubt by the file, and in the end each effect has arrived
exactly once. In the control the host does not remember its stores, so a `cp` is not noticed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

import standfast
from standfast import config
from standfast.admin import restore_gap
from standfast.admin.copies import resource, restore_here
from standfast.admin.copies.places import opened as opened_place
from standfast.core.progress import quiet
from standfast.errors import Conflict, EffectInDoubt, InProgress, StorageError
from standfast_prove.campaigns.places import _burn
from standfast_prove.campaigns.vandal import _settle_in
from standfast_prove.campaigns.warm import warmed
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.rows import Oracle, noted
from standfast_prove.outcome import Outcome

SELF = "standfast_prove.campaigns.disasters"
AGENTS = 2
KINDS = ("plain", "probed", "idempotent", "keyed", "plain")
"""The effects of one agent, in this order."""
FUSE_MAX = 60
"""An agent passes up to this number of crash points before it is killed. A whole run passes about as many."""
PASSES_MAX = 40
PATIENCE_S = 60.0
TOOLS = ("here", "here, lost", "cp")


def run(
    place: Path,
    *,
    seed: int = 0,
    url: str | None = None,
    disasters: int = 10,
    tools: tuple[str, ...] = TOOLS,
    forgetful: bool = False,
) -> Outcome:
    """Play a number of disasters, each with its own store and its own file of arrived requests."""
    outcome, chance = Outcome("disasters"), random.Random(f"disasters {seed}")
    with Nursery(words=place / "words") as nursery:
        warmed(nursery, postgres=url is not None)
        for number in range(disasters):
            own = place / f"disaster-{number}"
            own.mkdir()
            tool = tools[number % len(tools)]
            with ExitStack() as stack:
                where = stack.enter_context(_database(url)) if url else str(own / "store" / "standfast.db")
                store: Store = _Database(where) if url else _Files(Path(where))
                Disaster(outcome, nursery, own, store, chance, forgetful).play(tool)
            shutil.rmtree(own, ignore_errors=True)
            if outcome.bad:
                break
    return outcome


class Store(Protocol):
    """A store that another tool saves, deletes and puts back."""

    url: str

    def save(self) -> None: ...

    def put_back(self) -> None: ...

    def lose(self) -> None: ...


class _Files:
    """`cp` of the database and its WAL, while no process has them open."""

    def __init__(self, path: Path) -> None:
        self.url, self._path = str(path), path
        self._saved = path.parent.parent / "saved"

    def save(self) -> None:
        shutil.copytree(self._path.parent, self._saved)

    def put_back(self) -> None:
        shutil.rmtree(self._path.parent)
        shutil.copytree(self._saved, self._path.parent)

    def lose(self) -> None:
        for file in self._path.parent.glob(f"{self._path.name}*"):
            file.unlink()


class _Database:
    """A copy of a whole database of PostgreSQL by the server itself."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._server, _, self._name = url.rpartition("/")

    def save(self) -> None:
        self._run(f"CREATE DATABASE {self._name}_saved TEMPLATE {self._name}")

    def put_back(self) -> None:
        self._run(f"DROP DATABASE {self._name} WITH (FORCE)")
        self._run(f"ALTER DATABASE {self._name}_saved RENAME TO {self._name}")

    def lose(self) -> None:
        import psycopg

        with psycopg.connect(self.url) as connection:
            connection.execute("DROP SCHEMA standfast CASCADE")

    def _run(self, text: str) -> None:
        import psycopg

        with psycopg.connect(f"{self._server}/postgres", autocommit=True) as admin:
            others = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
            admin.execute(others, (self._name,))  # the agents are dead
            admin.execute(text.encode())


def _database(url: str) -> Any:
    from standfast_prove.postgres import fresh_database

    return fresh_database(url)


class Disaster:
    """One store, one way to put it back, and the runs of its agents afterwards."""

    def __init__(
        self, outcome: Outcome, nursery: Nursery, place: Path, store: Store, chance: random.Random, forgetful: bool
    ) -> None:
        self._outcome, self._nursery, self._place = outcome, nursery, place
        self._store, self._chance = store, chance
        (place / "home").mkdir()
        self._given = {"place": str(place), "forgetful": forgetful}

    def play(self, tool: str) -> None:
        ours = tool.startswith("here")
        self._child("create")  # otherwise an agent may be killed before there is a store to save
        self._agents(fuse=True)
        if ours:
            self._child("back_up")
        else:
            self._store.save()
        self._agents(fuse=self._chance.random() < 0.7)
        before = _arrived(self._place)
        if tool == "here, lost":
            self._store.lose()
        if ours:
            self._child("restore")
        else:
            self._store.put_back()
        self._agents(fuse=True)
        self._judge_repeated(tool)
        self._child("recover")
        self._judge_repeated(tool)
        self._outcome.count("disasters")
        self._outcome.count(f"by {tool}")
        self._outcome.count("effects sent before", sum(before.values()))
        for line in noted(self._place / "answers"):
            self._outcome.count(f"effects {line}")
        wanted = {_name(agent, n) for agent in range(AGENTS) for n in range(len(KINDS))}
        missing = wanted - set(_arrived(self._place))
        self._outcome.refuse(sorted(missing), f"{tool}: effects never arrived")

    def _judge_repeated(self, tool: str) -> None:
        twice = {name: times for name, times in _arrived(self._place).items() if times > 1}
        self._outcome.refuse(twice, f"{tool}: effects were sent again")

    def _agents(self, *, fuse: bool) -> None:
        fuses = [self._chance.randrange(1, FUSE_MAX) if fuse else 0 for _ in range(AGENTS)]
        given = {"url": self._store.url, **self._given}
        starters = [{**given, "agent": agent, "fuse": fuses[agent]} for agent in range(AGENTS)]
        for pid in self._nursery.race(f"{SELF}:work", starters):
            code = self._nursery.wait(pid, PATIENCE_S)
            self._outcome.count("agents killed", int(code == -signal.SIGKILL))
            self._ended(code, "an agent", killed=True)

    def _child(self, name: str) -> None:
        pid = self._nursery.start(f"{SELF}:{name}", url=self._store.url, **self._given)
        self._ended(self._nursery.wait(pid, PATIENCE_S), name, killed=False)

    def _ended(self, code: int | None, who: str, *, killed: bool) -> None:
        fine = code == 0 or (killed and code == -signal.SIGKILL)
        words = "" if fine else (self._place.parent / "words").read_text()[-1500:]
        self._outcome.refuse(not fine, f"{who} ended with {code}: {words}")


def _name(agent: int, n: int) -> str:
    return f"a{agent}-{n}-{KINDS[n]}"


def _arrived(place: Path) -> Counter[str]:
    """The number of times that each effect happened outside. The outside system ignores a key that it has seen."""
    lines = [line.split(" ") for line in noted(place / "book")]
    once = {(name, key) for name, key in lines if name.endswith("-idempotent")}
    return Counter([name for name, _ in once] + [name for name, _ in lines if not name.endswith("-idempotent")])


# -- in the children -----------------------------------------------------------------------------------


def _opened(url: str, place: str, forgetful: bool) -> standfast.Standfast:
    _settle_in(os.path.join(place, "home"), careless=forgetful)
    os.chdir(place)
    return standfast.open(url, data_dir=os.path.join(place, "data"))


def work(*, url: str, place: str, agent: int, fuse: int, forgetful: bool) -> None:
    """The whole program of one agent. It ends at the first effect in doubt.

    If another process records a gap while this one opens the store, the handle is refused, and the program starts
    again.
    """
    if fuse:
        _burn(fuse)
    for last in (False, True):
        try:
            with _opened(url, place, forgetful) as sf, suppress(EffectInDoubt, InProgress):
                _all(sf, Path(place), agent, Oracle(Path(place) / "unread"))
            return
        except StorageError as error:
            if last or error.code != "store_replaced":
                raise


def _all(sf: standfast.Standfast, place: Path, agent: int, answers: Oracle) -> None:
    with sf.session(f"job-{agent}") as session:
        for n, kind in enumerate(KINDS):
            try:
                answers.note(_effect(session, place, _name(agent, n), kind))
            except EffectInDoubt:
                answers.note("in doubt")
                raise


def _effect(session: Any, place: Path, name: str, kind: str) -> str:
    """Send the effect unless it was sent. Returns how the call got its result."""
    way = "replayed"

    def do(call: Any) -> str:
        nonlocal way
        way = "sent"
        Oracle(place / "book").note(f"{name} {call.key}")
        return name

    def probe(call: Any) -> Any:
        nonlocal way
        way = "found by the probe"
        return standfast.Applied(name) if _arrived(place)[name] else standfast.NotApplied()

    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "keyed": {"key": name},
        "probed": {"probe": probe, "settle": 0},
        "idempotent": {"key": name, "idempotent": True},
    }
    assert session.effect("send", {"name": name}, do=do, **options[kind]) == name
    return way


def recover(*, url: str, place: str, forgetful: bool) -> None:
    """Run every agent from the top. A person resolves each doubt by the file of arrived requests, and finally closes
    the gap.
    """
    answers = Oracle(Path(place) / "answers")
    for agent in range(AGENTS):
        for _ in range(PASSES_MAX):
            with _opened(url, place, forgetful) as sf:
                try:
                    _all(sf, Path(place), agent, answers)
                    break
                except EffectInDoubt:
                    _resolve(sf, Path(place))
        else:
            raise AssertionError(f"agent {agent} does not get to its end")
    with _opened(url, place, forgetful) as sf:
        assert sf.effects.in_doubt(everywhere=True) == []
        with suppress(Conflict):
            restore_gap.nothing_was_sent(sf._store)
            answers.note("of a gap that a person closed")
        assert sf.journal.check().findings == []


def _resolve(sf: standfast.Standfast, place: Path) -> None:
    arrived = _arrived(place)
    for effect in sf.effects.in_doubt(everywhere=True):
        name = effect.intent["name"]
        found = ("applied", name) if arrived[name] else ("not_applied", None)
        sf.effects.resolve(effect.id, found[0], result=found[1], evidence="the book")


def create(*, url: str, place: str, forgetful: bool) -> None:
    _opened(url, place, forgetful).close()


def back_up(*, url: str, place: str, forgetful: bool) -> None:
    with _opened(url, place, forgetful) as sf:
        sf.copies.take(to=os.path.join(place, "copies"))


def restore(*, url: str, place: str, forgetful: bool) -> None:
    """As `standfast restore --here --confirm HASH` does."""
    _settle_in(os.path.join(place, "home"), careless=forgetful)
    root = opened_place(os.path.join(place, "copies"))
    there = root.of(root.stores()[0])
    manifest = resource.read(there, resource.chosen(resource.listed(there), None, there.shown).id)
    settings = config.load(url, data_dir=os.path.join(place, "data"), quiet=True)
    restore_here.here(settings, manifest, there, restore_here.plan(settings, manifest), quiet)
