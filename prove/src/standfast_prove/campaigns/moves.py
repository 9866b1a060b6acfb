"""A store moves between SQLite and PostgreSQL, to and fro, and each move is interrupted.

    kill    the moving process dies at a crash point
    cut     the connection to the server is cut at a message, in either direction
    away    the same, and the server stays out of reach until the recovery has been tried

After each interruption a new process opens the source. It is also killed, or loses its connection. Then two things are
checked. Exactly one of the two stores accepts a write. It has every row: the hash of each table is the same as before
the move. If a process was writing during the move, every row that was acknowledged to it must be there. The next move
starts from this store.

In the control the source is renamed first, as other tools do.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import standfast
from standfast import config
from standfast.admin import move as moving
from standfast.admin.copies.restore_here import look
from standfast.config import parse_db_target
from standfast.core.progress import quiet
from standfast.db.tables import Sum, line
from standfast.errors import StorageError
from standfast_prove.campaigns.places import _burn
from standfast_prove.campaigns.vandal import _settle_in
from standfast_prove.campaigns.warm import warmed
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.proxy import CuttableLine
from standfast_prove.faults.rows import Oracle, noted
from standfast_prove.outcome import Outcome

SELF = "standfast_prove.campaigns.moves"
POINTS_MAX = 24
"""A move passes 23 crash points; the 24th is not reached, and the move completes."""
RECOVERY_MAX = 8
MESSAGES = 1100
"""A move has fewer messages than this: 766 to the server, 1,039 from it."""
PATIENCE_S = 120.0
ROWS = 40


def run(place: Path, *, url: str, seed: int = 0, moves: int = 40, renaming: bool = False) -> Outcome:
    """Play `moves` moves, one after another. The store begins in the file, or with an odd seed in the database."""
    outcome, chance = Outcome("moves"), random.Random(f"moves {seed}")
    port = urlsplit(url).port
    assert port is not None
    (place / "home").mkdir()
    with CountingLine(port) as counting, Nursery(words=place / "words") as nursery:
        warmed(nursery, postgres=True)
        two = [str(place / "a" / "standfast.db"), counting.url(url)]
        if seed % 2 and not renaming:
            two.reverse()
        pair = _Pair(outcome, nursery, place, counting, two, chance, renaming)
        for _ in range(moves):
            pair.attempt()
            if outcome.bad:
                break
    return outcome


class CountingLine(CuttableLine):
    """Cuts every connection at the n-th message, counted in both directions."""

    def __init__(self, target_port: int) -> None:
        self.passed = 0
        self._limit, self._stays = 0, False
        self._turn = threading.Lock()
        super().__init__(target_port)

    def cut_after(self, number: int, *, stays: bool) -> None:
        with self._turn:
            self.passed, self._limit, self._stays = 0, number, stays

    def count(self) -> None:
        self.cut_after(0, stays=False)

    def serve(self, client: socket.socket) -> None:
        if self._broken:
            return
        server = self.dial()
        threading.Thread(target=self._pass, args=(client, server), daemon=True).start()
        self._pass(server, client)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                with self._turn:
                    self.passed += 1
                    due = self.passed == self._limit
                if due:
                    self._broken = self._stays
                    self.cut()
                    return
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Pair:
    """Two stores. One of them accepts writes."""

    def __init__(
        self,
        outcome: Outcome,
        nursery: Nursery,
        place: Path,
        counting: CountingLine,
        two: list[str],
        chance: random.Random,
        renaming: bool,
    ) -> None:
        self._outcome, self._nursery, self._place = outcome, nursery, place
        self._line, self._chance, self._renaming = counting, chance, renaming
        self._source, self._target = two
        self._given = {"place": str(place)}
        self._child("fill", url=self._source)
        self._before = self._judged(None)["hashes"]

    def attempt(self) -> None:
        kind = self._chance.choice(("kill", "kill", "cut", "cut", "away"))
        writing = self._chance.random() < 0.3
        writer = self._nursery.start(f"{SELF}:write", url=self._source, **self._given) if writing else 0
        fuse = self._chance.randint(1, POINTS_MAX) if kind == "kill" else 0
        self._interrupt(kind, MESSAGES)
        self._child("attempt", killed=True, source=self._source, to=self._target, fuse=fuse, renaming=self._renaming)
        again = self._chance.random() < 0.7
        if kind != "away":
            self._interrupt("cut" if again and kind == "cut" else "kill", 20)
        fuse = self._chance.randint(1, RECOVERY_MAX) if again and kind == "kill" else 0
        self._child("recover", killed=True, url=self._source, fuse=fuse)
        self._line.mend()
        self._line.count()
        if writing:
            self._nursery.kill(writer)
        found = self._judged(None if writing else self._before)
        self._outcome.count("moves")
        self._outcome.count(f"interrupted by {kind}")
        self._outcome.count("recoveries interrupted", int(again))
        self._outcome.count("moves beside a writer", int(writing))
        self._before = found["hashes"]
        if found["authority"] == self._target:
            self._outcome.count("moves after which the target is the authority")
            self._source, self._target = self._target, self._source

    def _interrupt(self, kind: str, messages: int) -> None:
        if kind == "kill":
            self._line.count()
        else:
            self._line.cut_after(self._chance.randint(1, messages), stays=kind == "away")

    def _judged(self, before: dict[str, Any] | None) -> dict[str, Any]:
        """The state that two new processes find in both stores."""
        answer = self._place / "answer.json"
        answer.unlink(missing_ok=True)
        self._child("judge", urls=[self._source, self._target], answer=str(answer))
        if not answer.exists():
            return {"authority": "", "hashes": {}}
        found: dict[str, Any] = json.loads(answer.read_text())
        self._outcome.refuse(len(found["authorities"]) != 1, f"{len(found['authorities'])} places take a write")
        if before is not None:
            differ = sorted(name for name in before if found["found"].get(name) != before[name])
            self._outcome.refuse(differ, "tables differ after the move")
        missing = set(noted(self._place / "acknowledged")) - set(found["tasks"])
        self._outcome.refuse(sorted(missing)[:5], f"{len(missing)} acknowledged rows are gone")
        return {"authority": next(iter(found["authorities"]), ""), "hashes": found["hashes"]}

    def _child(self, name: str, *, killed: bool = False, **arguments: Any) -> None:
        pid = self._nursery.start(f"{SELF}:{name}", **arguments, **self._given)
        code = self._nursery.wait(pid, PATIENCE_S)
        if killed and code == -signal.SIGKILL:
            self._outcome.count("kills")
        elif code != 0:
            words = (self._place / "words").read_text()[-1500:]
            self._outcome.refuse(True, f"{name} ended with {code}: {words}")


# -- in the children -----------------------------------------------------------------------------------


def _at_home(place: str) -> None:
    _settle_in(os.path.join(place, "home"), careless=False)
    os.chdir(place)


def fill(*, url: str, place: str) -> None:
    """Rows of several kinds."""
    _at_home(place)
    with standfast.open(url, data_dir=os.path.join(place, "data")) as sf:
        with sf.session("pay") as session:
            session.effect("charge", {"n": 1}, do=lambda call: call.key)
        for n in range(ROWS):
            sf.events.append("orders", "placed", n)
        sf.events.commit(sf.events.poll("billing", limit=3))
        sf.artifacts.put(b"x" * 300_000, name="big")


def attempt(*, source: str, to: str, place: str, fuse: int, renaming: bool) -> None:
    """Try one move. An error is allowed: the judge checks both stores."""
    _at_home(place)
    settings = config.load(source, data_dir=os.path.join(place, "data"), quiet=True)
    target = parse_db_target(to, default_path=to)
    plan = _retried(lambda: moving.plan(settings, target))
    if fuse:
        _burn(fuse)
    if plan is None:
        return
    if renaming and settings.target.engine == "sqlite":
        aside = f"{source}.renamed"
        os.rename(source, aside)
        settings = settings._replace(target=settings.target._replace(location=aside))
        moving._change = lambda *_: None
    _retried(lambda: moving.move(settings, target, plan, quiet))


def _retried(call: Callable[[], Any]) -> Any:
    """Returns the answer, or None if the store or the server refused."""
    try:
        return call()
    except standfast.StandfastError:
        return None


def recover(*, url: str, place: str, fuse: int) -> None:
    """The next process that opens the source: it finishes the move, or undoes it."""
    _at_home(place)
    if fuse:
        _burn(fuse)
    _retried(lambda: standfast.open(url, data_dir=os.path.join(place, "data")).close())


def write(*, url: str, place: str) -> None:
    """Write rows until the process is killed. Note each acknowledged row."""
    _at_home(place)
    book = Oracle(Path(place) / "acknowledged")
    for _ in range(100_000):
        try:
            with standfast.open(url, data_dir=os.path.join(place, "data")) as sf:
                while True:
                    book.note(sf.tasks.add("written beside a move").id)
        except StorageError:
            pass


def judge(*, urls: list[str], answer: str, place: str) -> None:
    """The stores that accept a write, with their rows before and after it."""
    _at_home(place)
    said: dict[str, Any] = {"authorities": [], "hashes": {}, "found": {}, "tasks": []}
    for url in urls:
        target = parse_db_target(url, default_path=url)
        if look(target) is None:
            continue
        try:
            with standfast.open(url, data_dir=os.path.join(place, "data")) as sf:
                found = _hashes(target)
                sf.tasks.add("the judge")
                said["tasks"] = [task.id for task in sf.tasks.list(limit=100_000, everywhere=True)]
            said["authorities"].append(url)
            said["found"], said["hashes"] = found, _hashes(target)
        except StorageError as error:
            if error.code != "store_moved":
                raise
    _tidy(urls)
    Path(answer).write_text(json.dumps(said))


def _hashes(target: config.Target) -> dict[str, list[Any]]:
    """Rows and hash of every table."""
    found = {}
    with moving._reading(target) as source:
        for table in source.tables:
            own = Sum()
            for row in moving.carried(source, table):
                own.add(line(row))
            found[table.name] = [own.rows, own.hash]
    return found


def _tidy(urls: list[str]) -> None:
    """Remove the sealed stores of earlier moves, because no move removes them."""
    import psycopg

    for url in urls:
        if "://" not in url:
            for aside in Path(url).parent.glob("*.moved-*"):
                shutil.rmtree(aside)
            continue
        with psycopg.connect(url, autocommit=True) as connection:
            names = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'standfast_moved_%'")
            for (name,) in names.fetchall():
                connection.execute(f"DROP SCHEMA {name} CASCADE".encode())
