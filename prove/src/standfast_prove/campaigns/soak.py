"""All features run at once for a given time under random kills; then every invariant is checked.

A few processes work on each feature. They start again after each kill and note each try and each answer in files
outside the store. A daemon fires loops and is killed too. Other processes only read. At the end all processes have
ended, and the store is compared with the files.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import standfast
from standfast import config, handle
from standfast.errors import Busy, Conflict, EffectInDoubt
from standfast_prove.campaigns import daemons
from standfast_prove.campaigns.warm import warmed
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.daemons import Running
from standfast_prove.faults.rows import Oracle, integrity, noted
from standfast_prove.outcome import Outcome

HERE = "standfast_prove.campaigns.soak:"
SCOPE = ""
CAST = ("say", "perform", "count_up", "append", "consume", "toil", "post", "receive", "store_bytes", "hold", "look")
EACH = 2
SHORT = "1s"
WAL_MAX_BYTES = 128 * 1024 * 1024


def run(place: Path, *, seconds: float, seed: int, url: str | None = None) -> Outcome:
    outcome, draw = Outcome("soak"), random.Random(seed)
    asked: dict[str, object] = {"url": url or str(place / "standfast.db"), "place": str(place)}
    with _opened(asked, "founder") as sf:
        firsts = daemons.loops(sf, place, ("true", "sleep 0.3"))
    with Nursery(words=place / "words") as nursery:
        warmed(nursery, postgres=url is not None)
        crew = _Crew(nursery, asked, draw, outcome, firsts)
        crew.play(seconds, Path(str(asked["place"])) / "data", str(asked["url"]))
    with _opened(asked, "judge") as sf:
        _judge(outcome, sf, place, asked)
        daemons.judge(outcome, sf, place, firsts, crew.until_us, answered=False)
    return outcome


class _Crew:
    """Starts the processes and kills one after another."""

    def __init__(
        self, nursery: Nursery, asked: dict[str, object], draw: random.Random, outcome: Outcome, firsts: dict[str, int]
    ) -> None:
        self._nursery, self._asked, self._draw, self._outcome, self._firsts = nursery, asked, draw, outcome, firsts
        self.until_us = 0
        self._alive: dict[int, str] = {}
        self._life = 0

    def play(self, seconds: float, data: Path, url: str) -> None:
        for role in CAST * EACH:
            self._start(role)
        end = time.monotonic() + seconds  # on a slow machine the start of all processes takes this long
        while time.monotonic() < end and not self._outcome.bad:
            with Running(data, STANDFAST_DB_URL=url):
                self._torment(end)
            self._outcome.count("kills")
        (Path(str(self._asked["place"])) / "over").touch()
        for pid in list(self._alive):
            self._ended(pid, self._nursery.wait(pid, 120))
        with Running(data, STANDFAST_DB_URL=url) as daemon, _opened(self._asked, "judge") as sf:
            self.until_us = daemons.settle(sf, self._firsts)
            self._outcome.refuse(daemon.stop(), "the daemon did not end well")

    def _torment(self, end: float) -> None:
        """Run the daemon once, with faults for the other processes meanwhile."""
        while time.monotonic() < end and not self._outcome.bad and self._draw.random() > 0.1:
            time.sleep(self._draw.uniform(0.05, 0.5))
            self._kill(self._draw.choice(list(self._alive)))
            self._reap()

    def _start(self, role: str) -> None:
        self._life += 1
        self._alive[self._nursery.start(HERE + role, life=self._life, **self._asked)] = role

    def _kill(self, pid: int) -> None:
        if self._draw.random() < 0.2:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self._draw.uniform(0.01, 0.3))
            os.kill(pid, signal.SIGCONT)
            self._outcome.count("pauses")
        else:
            os.kill(pid, signal.SIGKILL)  # a zombie of ours until it is reaped, so the pid is its own
            self._outcome.count("kills")

    def _reap(self) -> None:
        for pid, role in list(self._alive.items()):
            code = self._nursery.wait(pid, 0)
            if code is not None:
                self._ended(pid, code)
                self._start(role)

    def _ended(self, pid: int, code: int | None) -> None:
        role = self._alive.pop(pid)
        words = (Path(str(self._asked["place"])) / "words").read_text(errors="replace")[-1500:]
        self._outcome.refuse(code not in (0, -signal.SIGKILL) and words, f"{role} ended with {code}")


# -- in the children ---------------------------------------------------------------------------------------------


@contextmanager
def _opened(asked: dict[str, Any], actor: str) -> Iterator[standfast.Standfast]:
    data = Path(asked["place"]) / "data"
    while True:
        try:
            found = handle.connect(config.load(asked["url"], data_dir=data, actor=actor, scope=SCOPE))
            break
        except Busy:
            continue
    with found as sf:
        yield sf


class Worker:
    """One process of one part of the program."""

    def __init__(self, role: str, sf: standfast.Standfast, place: Path, life: int) -> None:
        self.sf, self.place, self.life = sf, place, life
        self.book = Oracle(place / f"{role}.book")
        self.number = 0

    @property
    def name(self) -> str:
        return f"{self.life}-{self.number}"

    def turns(self) -> Iterator[None]:
        """Work until the soak ends. Transient errors are retried; a process that lost its lease takes the next job."""
        while not (self.place / "over").exists():
            self.number += 1
            yield None
            time.sleep(0.005)

    def acked(self, what: str, act: Callable[[], object]) -> bool:
        """Note the write, make it, and note the acknowledgement."""
        self.book.note(f"tried {what}")
        try:
            act()
        except (Busy, Conflict, EffectInDoubt):
            return False
        self.book.note(f"acked {what}")
        return True


@contextmanager
def _working(role: str, asked: dict[str, Any]) -> Iterator[Worker]:
    with _opened(asked, f"{role} {asked['life']}") as sf:
        yield Worker(role, sf, Path(asked["place"]), asked["life"])


def say(**asked: Any) -> None:
    with _working("say", asked) as w:
        with suppress(Busy, Conflict), w.sf.session(f"talk {w.life}"):
            pass
        for _ in w.turns():
            w.acked(w.name, lambda: w.sf.sessions.say(f"talk {w.life}", "user", w.name, key=w.name))


def perform(**asked: Any) -> None:
    """Send effects that have a probe. If a process dies in one, the next process settles it."""
    with _working("perform", asked) as w:
        world = Oracle(w.place / "world.book")
        for _ in w.turns():
            for effect in w.sf.effects.in_doubt(limit=5):
                there = f"{effect.key}" in noted(w.place / "world.book")
                with suppress(Busy, Conflict):
                    answer = "applied" if there else "not_applied"
                    w.sf.effects.resolve(effect.id, answer, evidence="the world's books", result=there or None)
            key = f"pay-{w.name}"

            def send(key: str = key) -> None:
                with w.sf.session(f"shop {w.life}") as s:
                    s.effect("pay", {"key": key}, key=key, do=lambda call: world.note(key))

            w.acked(key, send)


def count_up(**asked: Any) -> None:
    with _working("count_up", asked) as w:
        for _ in w.turns():
            w.acked("up", lambda: w.sf.state.update("counter", lambda value: value + 1, default=0))


def append(**asked: Any) -> None:
    with _working("append", asked) as w:
        for _ in w.turns():
            w.acked(w.name, lambda: w.sf.events.append("stream", "said", w.name))


def consume(**asked: Any) -> None:
    with _working("consume", asked) as w:
        for _ in w.turns():
            with suppress(Busy, Conflict):
                batch = w.sf.events.poll("reader", "stream", limit=20)
                if batch.events:
                    w.sf.events.commit(batch)
                for event in batch.events:
                    w.book.note(str(event.version))


def toil(**asked: Any) -> None:
    with _working("toil", asked) as w:
        for _ in w.turns():
            w.acked(f"add {w.name}", lambda: w.sf.tasks.add(f"job {w.name}", fingerprint=w.name))
            with suppress(Busy, Conflict):
                task = w.sf.tasks.claim(for_=SHORT)
                if task is not None:
                    w.acked(f"done {task.id}", lambda task=task: w.sf.tasks.done(task))  # type: ignore[misc]


def post(**asked: Any) -> None:
    with _working("post", asked) as w:
        for _ in w.turns():
            w.acked(w.name, lambda: w.sf.mail.send("box", w.name, key=w.name))


def receive(**asked: Any) -> None:
    with _working("receive", asked) as w:
        for _ in w.turns():
            with suppress(Busy, Conflict):
                mail = w.sf.mail.claim("box", for_=SHORT)
                if mail is not None:
                    w.acked(f"{mail.id} {mail.body}", lambda mail=mail: w.sf.mail.done(mail))  # type: ignore[misc]


def store_bytes(**asked: Any) -> None:
    with _working("store_bytes", asked) as w:
        for _ in w.turns():
            data = w.name.encode() * (1 + w.number % 5000)
            w.acked(w.name, lambda data=data: w.sf.artifacts.put(data, name=w.name))  # type: ignore[misc]


def hold(**asked: Any) -> None:
    """Take leases. The holder of a lease also takes a file lock, which must be free."""
    with _working("hold", asked) as w:
        for _ in w.turns():
            with suppress(Busy, Conflict), w.sf.leases.hold("door"), open(w.place / "door", "w") as door:
                try:
                    fcntl.flock(door, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    w.book.note("two live holders")
                time.sleep(0.002)
                w.book.note("held")


def look(**asked: Any) -> None:
    """Only read. No read may fail."""
    with _working("look", asked) as w:
        for _ in w.turns():
            with suppress(Busy):
                w.sf.brief()
                w.sf.search("job")
                w.sf.timeline(limit=20)
                for sight in (w.sf.tasks.list, w.sf.effects.list, w.sf.loops.list, w.sf.agents.list):
                    sight()
                w.book.note("looked")
            time.sleep(0.05)


# -- the end -----------------------------------------------------------------------------------------------------


def _judge(outcome: Outcome, sf: standfast.Standfast, place: Path, asked: dict[str, Any]) -> None:
    books = {role: Counter(noted(place / f"{role}.book")) for role in CAST}
    for part in (_said, _paid, _counted, _streamed, _toiled, _mailed, _kept):
        part(outcome, sf, books, place)
    outcome.refuse(books["hold"]["two live holders"], "two live holders of one lease")
    for role, what in (("hold", "held"), ("look", "looked")):
        outcome.count(f"times {what}", books[role][what])
    if "://" not in str(asked["url"]):
        state = integrity(str(asked["url"]))
        outcome.refuse(state != "ok" and state, "integrity")
        wal = os.path.getsize(f"{asked['url']}-wal") if os.path.exists(f"{asked['url']}-wal") else 0
        outcome.refuse(wal > WAL_MAX_BYTES and wal, "the log has grown")


def _told(book: Counter[str], prefix: str = "") -> set[str]:
    return {line.removeprefix(f"acked {prefix}") for line in book if line.startswith(f"acked {prefix}")}


def _same(outcome: Outcome, what: str, book: Counter[str], there: Counter[str], prefix: str = "") -> None:
    """Check that acknowledged work is there, that every row was tried, and that nothing is there twice."""
    acked = _told(book, prefix)
    tried = {line.removeprefix(f"tried {prefix}") for line in book if line.startswith(f"tried {prefix}")}
    outcome.count(what, len(there))
    outcome.refuse(sorted(acked - set(there))[:5], f"{what}: acknowledged and missing")
    outcome.refuse(sorted(set(there) - tried)[:5], f"{what}: there and never tried")
    outcome.refuse([name for name, number in there.items() if number > 1][:5], f"{what}: doubled")


Books = dict[str, Counter[str]]


def _said(outcome: Outcome, sf: standfast.Standfast, books: Books, place: Path) -> None:
    rows = sf.rows("SELECT content FROM message WHERE role = 'user'")
    _same(outcome, "messages", books["say"], Counter(str(row["content"]).strip('"') for row in rows))


def _paid(outcome: Outcome, sf: standfast.Standfast, books: Books, place: Path) -> None:
    world = Counter(noted(place / "world.book"))
    outcome.count("effects", len(world))
    outcome.refuse([key for key, number in world.items() if number > 1][:5], "effects: sent twice")
    outcome.refuse(sorted(_told(books["perform"]) - set(world))[:5], "effects: acknowledged and never sent")
    states = {row["key"]: row["state"] for row in sf.rows("SELECT key, state FROM effect WHERE tool = 'pay'")}
    outcome.refuse(
        [key for key in _told(books["perform"]) if states.get(key) != "acknowledged"][:5],
        "effects: an acknowledged one is not recorded",
    )
    outcome.refuse(sorted(set(world) - set(states))[:5], "effects: sent and not recorded")
    wrong = [key for key, state in states.items() if state == "acknowledged" and key not in world]
    outcome.refuse(wrong[:5], "effects: acknowledged and never sent")


def _counted(outcome: Outcome, sf: standfast.Standfast, books: Books, place: Path) -> None:
    acked, tried = books["count_up"]["acked up"], books["count_up"]["tried up"]
    value: Any = sf.state.get("counter").value if acked else 0
    outcome.count("counted", value)
    outcome.refuse(not acked <= value <= tried and f"{acked} acknowledged, {value} there, {tried} tried", "the counter")


def _streamed(outcome: Outcome, sf: standfast.Standfast, books: Books, place: Path) -> None:
    rows = list(sf.rows("SELECT version, data FROM event WHERE stream = 'stream' ORDER BY version"))
    _same(outcome, "events", books["append"], Counter(str(row["data"]).strip('"') for row in rows))
    versions = [row["version"] for row in rows]
    outcome.refuse(versions != list(range(1, len(rows) + 1)) and versions[-3:], "events: a version is missing")
    consumed = [line for line, number in books["consume"].items() if number > 1]
    outcome.refuse(consumed[:5], "events: consumed twice after a committed place")


def _toiled(outcome: Outcome, sf: standfast.Standfast, books: Books, place: Path) -> None:
    rows = list(sf.rows("SELECT id, title, state FROM task"))
    titles = Counter(str(row["title"]).removeprefix("job ") for row in rows if str(row["title"]).startswith("job "))
    _same(outcome, "tasks", books["toil"], titles, "add ")
    closed = {row["id"] for row in rows if row["state"] == "closed"}
    outcome.refuse(sorted(_told(books["toil"], "done ") - closed)[:5], "tasks: acknowledged as done, and open")
    twice = [line for line, number in books["toil"].items() if line.startswith("acked done ") and number > 1]
    outcome.refuse(twice[:5], "tasks: done twice")


def _mailed(outcome: Outcome, sf: standfast.Standfast, books: Books, place: Path) -> None:
    rows = list(sf.rows("SELECT id, body, state FROM mail"))
    _same(outcome, "mails", books["post"], Counter(str(row["body"]).strip('"') for row in rows))
    done = {row["id"] for row in rows if row["state"] == "done"}
    acked = Counter(line.split()[1] for line in books["receive"].elements() if line.startswith("acked "))
    outcome.refuse(sorted(set(acked) - done)[:5], "mails: acknowledged as done and not done")
    outcome.refuse([id for id, number in acked.items() if number > 1][:5], "mails: done twice")


def _kept(outcome: Outcome, sf: standfast.Standfast, books: Books, place: Path) -> None:
    there = {row["name"] for row in sf.rows("SELECT name FROM artifact WHERE kind = 'file'")}
    outcome.count("artifacts", len(there))
    outcome.refuse(sorted(_told(books["store_bytes"]) - there)[:5], "artifacts: acknowledged and missing")
    outcome.refuse(list(sf.artifacts.verify())[:3], "artifacts: bytes")
