"""Programs are killed and started again in another directory: a worktree, a clone, outside of git, a moved directory.

Each program works on one job: a session with effects, a webhook, a credit, mail, a stream and a loop. It starts in a
random directory and dies at a random crash point. A file outside the store has a line for each request that arrived.

    late         requests arrive after their sender has died; needs the settle time of probes
    varied       after a swallowed doubt the same effect follows with other arguments; needs sessions that stop
    yesterday    control: the directory decides the scope, so one key means several things
    proceed      control: the program passes over each doubt, so its session does not stop
    unnamed      control: errors name neither the effect in doubt nor the repositories

Nothing may be sent, handled or granted twice, and nothing left out. Each refusal names the effect in doubt, or the
key and both repositories. It also names who sent or wrote it and when, and the next command.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import standfast
from standfast import config, crash, handle, hints
from standfast.config.scope import OUTSIDE, Label
from standfast.errors import EffectInDoubt, StandfastError
from standfast.ids import short
from standfast.ledger.effects import texts
from standfast_prove.campaigns.warm import warmed
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.rows import Oracle, noted
from standfast_prove.outcome import Outcome

HERE = "standfast_prove.campaigns.places:"
ORIGIN = "git@github.com:shop/shop.git"
SAID = 4
"""Messages of the LLM in one job."""
FUSE_MAX = 90
"""A program passes up to this number of crash points before it is killed. A whole job has about as many."""
LATE_S = 1.0
PROBED = ("sent post", "sent charge")
SETTLE = "2s"
GRANTED = 100
PATIENCE_S = 120.0
AT = r" at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
WHY = "|".join(map(re.escape, texts.WHY.values()))


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
    unnamed: bool = False,
    settle: str | None = SETTLE,
) -> Outcome:
    """`jobs` one after another, each with `starts` programs that may die, and a last one that does not."""
    outcome = Outcome("places")
    draw = random.Random(f"places {seed}")
    asked: dict[str, Any] = {"url": url or str(place / "standfast.db"), "place": str(place)}
    asked |= {"yesterday": yesterday, "late": late, "varied": varied, "proceed": proceed, "settle": settle}
    asked |= {"unnamed": unnamed}
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
    """Start a program in a directory, kill it, change the repository, and start in another directory. The last program
    runs to its end.
    """
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
        outcome.refuse(ended != 0, f"a program that was not killed ended with {ended}")
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
    """A minimal git repository."""
    for name in ("objects", "refs"):
        (path / ".git" / name).mkdir(parents=True)
    (path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (path / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {origin}\n' if origin else "")


# -- a program -------------------------------------------------------------------------------------------


def work(*, place: str, cwd: str, fuse: int, where: str, job: int, **asked: Any) -> None:
    """Do all parts of a job, each until it is done or refused. The fuse kills the process at a crash point."""
    os.chdir(cwd)
    world = _World(Path(place), asked["late"])
    if asked["unnamed"]:
        texts.shown = lambda row: "an effect"
        Label.shown = property(lambda label: "a repository")  # type: ignore[method-assign,assignment]
    if fuse:
        _burn(fuse)
    with _opened(asked | {"place": place}) as sf:
        for part in (_session, _webhook, _credit, _mail, _stream, _loop):
            try:
                part(sf, world, job, asked)
            except StandfastError as error:
                world.stop(error, part=part.__name__, where=where, job=job)


def visit(*, cwd: str, **asked: Any) -> None:
    """Any command in a repository stores both labels of the repository."""
    os.chdir(cwd)
    _opened(asked).close()


def resolve(*, cwd: str, place: str, **asked: Any) -> None:
    """A person waits until every request has arrived, reads the file of arrived requests, and resolves effects
    without a probe.
    """
    os.chdir(cwd)
    while not _all_arrived(Path(place)):
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
    """The outside system: a line for each request that arrived; with `late`, a while after it was sent.

    If the sender died, the request arrives just after the next program has looked for it. So it is late on any machine.
    """

    def __init__(self, place: Path, late: bool) -> None:
        self._place, self._late = place, late
        self._book, self._stops = Oracle(place / "world"), Oracle(place / "stops")

    def post(self, what: str) -> str:
        if not self._late:
            self._book.note(what)
            return what
        request = self._place / "requests" / f"{time.time_ns()}-{os.getpid()}"
        request.with_suffix(".new").write_text(what)
        os.rename(request.with_suffix(".new"), request)
        while request.exists() or request.with_suffix(".taken").exists():
            crash.point("effect.before_done")  # a program may die while its request is in flight
            time.sleep(0.02)
        return what

    def stop(self, error: StandfastError, **about: Any) -> None:
        """Note the error that a refused program gets."""
        effect = getattr(error, "effect_id", "")
        told = {"code": error.code, "message": error.message, "hint": error.hint, "effect": effect}
        self._stops.note(json.dumps(told | about))

    def find(self, what: str) -> standfast.Applied | standfast.NotApplied:
        known = what in noted(self._place / "world")
        for request in _on_their_way(self._place):
            if not _is_alive(request) and request.read_text() == what:
                _arrive(request, self._book)
        return standfast.Applied(what) if known else standfast.NotApplied()


def _on_their_way(place: Path) -> list[Path]:
    return sorted(one for one in (place / "requests").iterdir() if not one.suffix)


def _is_alive(request: Path) -> bool:
    return os.path.exists(f"/proc/{request.name.partition('-')[2]}")


def _waits(request: Path) -> bool:
    """Whether the sender is dead and the next program will look for the request. Then the request arrives just after
    that look.
    """
    return not _is_alive(request) and request.read_text().startswith(PROBED)


def _all_arrived(place: Path) -> bool:
    """Whether every request has arrived, except those that wait for a program to look for them."""
    try:
        return all(request.read_text().startswith(PROBED) for request in (place / "requests").iterdir())
    except FileNotFoundError:  # the request arrives now
        return False


def _arrive(request: Path, book: Oracle) -> None:
    """Let the request arrive once, although two processes may deliver it."""
    taken = request.with_suffix(".taken")
    with suppress(FileNotFoundError):
        os.rename(request, taken)
        book.note(taken.read_text())
        taken.unlink()


@contextmanager
def _remote(nursery: Nursery, asked: dict[str, Any]) -> Iterator[None]:
    pid = nursery.start(HERE + "deliver", place=asked["place"]) if asked["late"] else None
    try:
        yield
    finally:
        if pid is not None:
            nursery.kill(pid)


def deliver(*, place: str) -> None:
    """Requests arrive up to a second after they were sent. Those that a probe will look for wait for it."""
    draw, book = random.Random(place), Oracle(Path(place) / "world")
    while True:
        for request in _on_their_way(Path(place)):
            with suppress(FileNotFoundError):
                if not _waits(request):
                    time.sleep(draw.uniform(0, LATE_S))
                if not _waits(request):  # the sender may have died since
                    _arrive(request, book)
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
                _say(s, world, job, f"sent say {job} {n}", proceed=asked["proceed"])


def _say(s: Any, world: _World, job: int, what: str, *, proceed: bool) -> None:
    """As in a framework that turns errors into text, the LLM tries again with other arguments."""
    for words in ("hello", "Hello!", "hello again"):
        if proceed:
            s.proceed()
        try:
            s.effect("say", {"what": what, "words": words}, do=lambda _: world.post(what))
        except EffectInDoubt as error:
            world.stop(error, part="_say", wanted=f"say what={what} words={words}", job=job)
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
    outcome.count("requests", len(world))
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
        stops = [json.loads(line) for line in noted(place / "stops")] if (place / "stops").exists() else []
        outcome.count("variations refused", sum(stop["part"] == "_say" for stop in stops))
        for stop in stops:
            outcome.count(f"stops by {stop['code']}")
            outcome.refuse(not _names_its_reason(sf, stop) and stop, "a stop without its reason")


def _handled_twice(world: list[str]) -> Iterator[str]:
    """Webhooks that were handled again after they were done. A handler that was killed before may begin again."""
    done = set()
    for line in world:
        word, _, what = line.partition(" ")
        if word == "ended":
            done.add(what)
        elif word == "begun" and what in done:
            yield what


def _names_its_reason(sf: standfast.Standfast, stop: dict[str, Any]) -> bool:
    if stop["code"] == "other_repository":
        return _names_key_and_repositories(stop)
    return stop["code"] == "effect_in_doubt" and _names_the_doubt(sf, stop)


def _names_key_and_repositories(stop: dict[str, Any]) -> bool:
    keys = {"_session": f"session 'job-{stop['job']}'", "_loop": f"loop 'nightly-{stop['job']}'"}
    message: str = stop["message"]
    named = message.count("github.com/else/where") == 1 and message.count("/.git") == 2
    named = named and re.search(rf", written by \S+( as \S+)?{AT}\. This is ", message) is not None
    return message.startswith(keys.get(stop["part"], "?")) and named and "standfast --scope NAME" in stop["hint"]


def _names_the_doubt(sf: standfast.Standfast, stop: dict[str, Any]) -> bool:
    """Whether the error names the effect in doubt, of the same job, and the command for each answer. For a variation it
    also names the varied effect and its session.
    """
    effect = sf.effects.get(stop["effect"])
    doubt = " ".join([effect.tool, *(f"{name}={value}" for name, value in effect.intent.items())])
    wanted = stop.get("wanted", doubt)
    answers = [
        hints.command("effect", "resolve", short(effect.id), answer) for answer in ("--applied", "--not-applied")
    ]
    sender = re.escape(effect.agent or "?")
    parts = [f"session 'job-{stop['job']}' is stopped, so {wanted} was not sent"] if wanted != doubt else []
    return bool(
        effect.intent["what"].split()[2] == str(stop["job"])
        and "effect.resolved" in {event.type for event in sf.journal.about(effect.id)}
        and re.match(rf"{re.escape(doubt)} is in doubt: attempt \d+ was sent{AT} by {sender}, ({WHY})", stop["message"])
        and all(part in stop["message"] for part in parts)
        and all(answer in stop["hint"] for answer in answers)
        and ("s.proceed()" in stop["hint"]) == bool(parts)
    )
