"""Programs that are killed and started again somewhere else: in a worktree, a clone, outside, after a move.

Each program works on one job: a session with effects, a webhook, a credit, mail, a stream and a loop. It starts in a
random place and dies at a random crash point. A book outside the store has a line for each request that arrived.

    yesterday    the control: the directory decides the scope, so that one key is several things
    late         requests arrive after their sender has died; needs effects that wait to settle (`settle`)
    varied       a swallowed doubt is followed by the same effect in other words; needs sessions that stop
    proceed      the control: the program passes over each doubt, so that its session does not stop

Judged: nothing sent, handled or granted twice, nothing left out, and each stop says why.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import standfast
from standfast import config, crash, handle
from standfast.config.scope import OUTSIDE
from standfast.errors import EffectInDoubt, StandfastError
from standfast_prove.campaigns.warm import warmed
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.rows import Oracle, noted
from standfast_prove.outcome import Outcome

HERE = "standfast_prove.campaigns.places:"
ORIGIN = "git@github.com:shop/shop.git"
SAID = 4
"""Messages of the LLM in one job."""
FUSE_MAX = 90
"""Crash points that a program passes before it dies, at most; a whole job has about as many."""
LATE_S = 1.0
SETTLE = "2s"
GRANTED = 100
PATIENCE_S = 120.0


def run(
    place: Path,
    *,
    seed: int,
    url: str | None = None,
    jobs: int = 4,
    starts: int = 12,
    yesterday: bool = False,
    late: bool = False,
    varied: bool = False,
    proceed: bool = False,
    settle: str | None = SETTLE,
) -> Outcome:
    """`jobs` one after another, each with `starts` programs that may die, and a last one that does not."""
    outcome = Outcome("places")
    draw = random.Random(f"places {seed}")
    asked: dict[str, Any] = {"url": url or str(place / "standfast.db"), "place": str(place)}
    asked |= {"yesterday": yesterday, "late": late, "varied": varied, "proceed": proceed, "settle": settle}
    (place / "requests").mkdir()
    with Nursery(words=place / "words") as nursery, _remote(nursery, asked):
        warmed(nursery, postgres=url is not None)
        for job in range(jobs):
            world = _Directories(place / f"job-{job}")
            _play(outcome, nursery, asked | {"job": job}, world, draw, starts)
            if outcome.bad:
                return outcome
        _judge(outcome, place, asked, jobs)
    return outcome


def _play(
    outcome: Outcome, nursery: Nursery, asked: dict[str, Any], world: _Directories, draw: random.Random, starts: int
) -> None:
    """Start in a place, die, change the repository, start in another. The last program runs to its end."""
    changes = dict(zip(sorted(draw.sample(range(1, starts), 2)), (world.add_remote, world.move), strict=True))
    for number in range(starts):
        if number in changes:
            changes[number]()
            _start(outcome, nursery, asked, "main", world.places()["main"], 0, program="visit")
        where, cwd = draw.choice(sorted(world.places().items()))
        _start(outcome, nursery, asked, where, cwd, draw.randrange(1, FUSE_MAX))
    _start(outcome, nursery, asked, "main", world.places()["main"], 0, program="resolve")
    for where in ("outside", "main", "other"):  # the first repository to use a key has it
        ended = _start(outcome, nursery, asked, where, world.places()[where], 0)
        outcome.refuse(ended != 0, f"a program that nobody kills ended with {ended}")
    outcome.count("jobs")


def _start(
    outcome: Outcome,
    nursery: Nursery,
    asked: dict[str, Any],
    where: str,
    cwd: Path,
    fuse: int,
    program: str = "work",
) -> int | None:
    pid = nursery.start(HERE + program, **asked, where=where, cwd=str(cwd), fuse=fuse)
    code = nursery.wait(pid, PATIENCE_S)
    outcome.count("starts")
    outcome.count("kills", int(code == -signal.SIGKILL))
    outcome.refuse(code not in (0, -signal.SIGKILL), f"a program {where} ended with {code}")
    return code


class _Directories:
    """A repository without a remote, a worktree of it, another repository, and a directory outside any."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._main = root / "main"
        self._remote = False
        _repository(self._main)
        _repository(root / "other", "https://github.com/else/where")
        (root / "outside").mkdir()
        own = self._main / ".git" / "worktrees" / "tree"
        own.mkdir(parents=True)
        (own / "HEAD").write_text("ref: refs/heads/tree\n")
        (own / "commondir").write_text("../..\n")
        (root / "tree").mkdir()
        (root / "tree" / ".git").write_text(f"gitdir: {own}\n")

    def places(self) -> dict[str, Path]:
        found = {name: self._root / name for name in ("other", "outside", "tree")} | {"main": self._main}
        return found | ({"clone": self._root / "clone"} if self._remote else {})

    def add_remote(self) -> None:
        with open(self._main / ".git" / "config", "a") as file:
            file.write(f'[remote "origin"]\n\turl = {ORIGIN}\n')
        _repository(self._root / "clone", ORIGIN)
        self._remote = True

    def move(self) -> None:
        self._main = Path(shutil.move(self._main, self._root / "moved"))


def _repository(path: Path, origin: str | None = None) -> None:
    """As much of a repository as git itself asks for."""
    for name in ("objects", "refs"):
        (path / ".git" / name).mkdir(parents=True)
    (path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (path / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {origin}\n' if origin else "")


# -- a program -------------------------------------------------------------------------------------------


def work(*, place: str, cwd: str, fuse: int, where: str, job: int, **asked: Any) -> None:
    """All parts of a job, each until it is done or refused; killed at the crash point that burns the fuse."""
    os.chdir(cwd)
    told, world = Oracle(Path(place) / "told"), _World(Path(place), asked["late"])
    if fuse:
        _burn(fuse)
    with _opened(asked | {"place": place}) as sf:
        for part in (_session, _webhook, _credit, _mail, _stream, _loop):
            try:
                part(sf, world, job, asked)
            except StandfastError as error:
                said = {"code": error.code, "where": where, "part": part.__name__, "says": str(error)}
                told.note(json.dumps(said | {"hint": error.hint}))


def visit(*, cwd: str, **asked: Any) -> None:
    """Any command in a repository tells the store both of its labels."""
    os.chdir(cwd)
    _opened(asked).close()


def resolve(*, cwd: str, place: str, **asked: Any) -> None:
    """A person waits until every request has arrived, looks into the book, and resolves what has no probe."""
    os.chdir(cwd)
    while any((Path(place) / "requests").iterdir()):
        time.sleep(0.005)
    arrived = noted(Path(place) / "world")
    with _opened(asked | {"place": place}) as sf:
        for effect in sf.effects.in_doubt(everywhere=True):
            if effect.tool == "say":
                what = effect.intent["what"]
                answer = ("applied", what) if what in arrived else ("not_applied", None)
                sf.effects.resolve(effect.id, answer[0], evidence="the book", result=answer[1])


def _opened(asked: dict[str, Any]) -> standfast.Standfast:
    settings = config.load(asked["url"], data_dir=os.path.join(asked["place"], "data"), quiet=True)
    if asked["yesterday"]:
        settings = settings._replace(scope=settings.label.name, label=OUTSIDE)
    return handle.connect(settings)


def _burn(fuse: int) -> None:
    left = [fuse]

    def passed(_: str) -> None:
        left[0] -= 1
        if not left[0]:
            crash.die()

    crash.arm(passed)


class _World:
    """The outside system: a line for each request that arrived; with `late`, a while after it was sent."""

    def __init__(self, place: Path, late: bool) -> None:
        self._place, self._late = place, late
        self._book = Oracle(place / "world")

    def post(self, what: str) -> str:
        if not self._late:
            self._book.note(what)
            return what
        request = self._place / "requests" / f"{time.time_ns()}-{os.getpid()}"
        request.with_suffix(".new").write_text(what)
        os.rename(request.with_suffix(".new"), request)
        crash.point("effect.before_done")  # a program may die while its request is on its way
        while request.exists():
            time.sleep(0.005)
        return what

    def note(self, what: str) -> None:
        self._book.note(what)

    def find(self, what: str) -> standfast.Applied | standfast.NotApplied:
        return standfast.Applied(what) if what in noted(self._place / "world") else standfast.NotApplied()


@contextmanager
def _remote(nursery: Nursery, asked: dict[str, Any]) -> Iterator[None]:
    pid = nursery.start(HERE + "deliver", place=asked["place"]) if asked["late"] else None
    try:
        yield
    finally:
        if pid is not None:
            nursery.kill(pid)


def deliver(*, place: str) -> None:
    """Requests arrive up to a second after they were sent, whether or not their sender lives."""
    draw, book, requests = random.Random(place), Oracle(Path(place) / "world"), Path(place) / "requests"
    while True:
        for request in sorted(one for one in requests.iterdir() if one.suffix != ".new"):
            time.sleep(draw.uniform(0, LATE_S))
            book.note(request.read_text())
            request.unlink()
        time.sleep(0.005)


def _session(sf: standfast.Standfast, world: _World, job: int, asked: dict[str, Any]) -> None:
    settle = {"settle": asked["settle"]} if asked["late"] and asked["settle"] else {}

    def effect(s: Any, what: str, **more: Any) -> None:
        more |= settle
        s.effect("post", {"what": what}, do=lambda _: world.post(what), probe=lambda _: world.find(what), **more)

    with sf.session(f"job-{job}") as s:
        s.state["plan"] = s.step("plan", lambda: job)
        effect(s, f"sent post {job}")
        effect(s, f"sent charge {job}", key=f"charge:{job}")
        if asked["varied"]:
            for n in range(SAID):
                _say(s, world, f"sent say {job} {n}", proceed=asked["proceed"])


def _say(s: Any, world: _World, what: str, *, proceed: bool) -> None:
    """As a framework does that turns errors into text: the LLM tries again in other words."""
    for words in ("hello", "Hello!", "hello again"):
        if proceed:
            s.proceed()
        try:
            s.effect("say", {"what": what, "words": words}, do=lambda _: world.post(what))
        except EffectInDoubt:
            world.note(f"refused {words}, {what}")
        else:
            return


def _webhook(sf: standfast.Standfast, world: _World, job: int, asked: dict[str, Any]) -> None:
    def handle_it(event: Any) -> None:
        world.post(f"begun webhook {job}")

    event = sf.webhooks.receive("stripe", f"evt_{job}", {"job": job}, do=handle_it)
    if event.state == "done":
        world.post(f"ended webhook {job}")


def _credit(sf: standfast.Standfast, world: _World, job: int, asked: dict[str, Any]) -> None:
    sf.credits.grant(f"ada-{job}", GRANTED, key=f"grant:{job}")


def _mail(sf: standfast.Standfast, world: _World, job: int, asked: dict[str, Any]) -> None:
    sf.mail.send(f"box-{job}", {"job": job}, key=f"note:{job}")


def _stream(sf: standfast.Standfast, world: _World, job: int, asked: dict[str, Any]) -> None:
    sf.events.append(f"orders-{job}", "order.paid", {"job": job}, key="paid")
    for _ in sf.events.consume("books", f"orders-{job}"):
        world.post(f"begun event {job}")
    world.post(f"ended event {job}")


def _loop(sf: standfast.Standfast, world: _World, job: int, asked: dict[str, Any]) -> None:
    sf.loops.add(f"nightly-{job}", ["true"], every="1h", cwd="/")


# -- the end ---------------------------------------------------------------------------------------------


def _judge(outcome: Outcome, place: Path, asked: dict[str, Any], jobs: int) -> None:
    world = noted(place / "world")
    refused = sum(line.startswith("refused ") for line in world)
    outcome.count("variations refused", refused)
    outcome.count("requests", len(world) - refused)
    sent = Counter(line for line in world if line.startswith("sent "))
    outcome.refuse([line for line, times in sent.items() if times > 1], "sent twice")
    wanted = {f"sent {kind} {job}" for kind in ("post", "charge") for job in range(jobs)}
    wanted |= {f"sent say {job} {n}" for job in range(jobs) for n in range(SAID)} if asked["varied"] else set()
    outcome.refuse(wanted - set(sent), "never sent")
    outcome.refuse(list(_handled_twice(world)), "handled twice")
    with _opened(asked | {"yesterday": False}) as sf:
        rows = sf.rows("SELECT account, SUM(amount) AS sum FROM credit_entry GROUP BY account")
        outcome.refuse([row for row in rows if int(row["sum"]) != GRANTED], "granted twice")
        for table, column in (("session", "key"), ("loop", "name"), ("mail", "key"), ("webhook_event", "event_id")):
            rows = sf.rows(f"SELECT {column} AS name, count(*) AS n FROM {table} GROUP BY {column} HAVING count(*) > 1")
            outcome.refuse(list(rows), f"two rows of {table} for one key")
    _judge_stops(outcome, [json.loads(line) for line in noted(place / "told")])


def _handled_twice(world: list[str]) -> Iterator[str]:
    """Handled again after it had been done: a handler that was killed on the way may begin again."""
    done = set()
    for line in world:
        word, _, what = line.partition(" ")
        if word == "ended":
            done.add(what)
        elif word == "begun" and what in done:
            yield what


def _judge_stops(outcome: Outcome, stops: list[dict[str, str]]) -> None:
    keyed = ("_session", "_loop")
    for stop in stops:
        outcome.count(f"stops by {stop['code']}")
        named = stop["says"].count("github.com/else/where") == 1 and stop["says"].count("/.git") == 2
        fit = {
            "other_repository": stop["part"] in keyed and named and "scope=" in stop["says"],
            "effect_in_doubt": stop["part"] == "_session",
        }
        outcome.refuse(not (fit.get(stop["code"]) and stop["hint"]) and stop, "a stop without its reason")
