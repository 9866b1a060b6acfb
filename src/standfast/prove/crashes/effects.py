"""A small agent, a world that keeps its own books, and an oracle that compares them with the store.

The world is a file that `do` appends to with one write; nothing in the store knows it. The agent
words its requests differently in every life, as a model would. A person settles what is in
doubt by looking into the world, as a person would, and never guesses.

    plain        nothing but an intent: in doubt, a person looks
    probed       in doubt, its probe looks
    idempotent   in doubt, it is sent again with the same key; the world counts keys, and refuses
                 a key that comes with other words
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import standfast
from standfast import crash, serial
from standfast.prove.faults.children import say

LIVES_MAX = 8


class World:
    """Append-only books outside the store: `tool what key words`, one line a request that arrived."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def receive(self, tool: str, what: str, key: str, words: str) -> str:
        """A request arrives. Every one is booked; the answer is the same for the same thing."""
        handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(handle, f"{tool}\t{what}\t{key}\t{words}\n".encode())
        os.close(handle)
        return f"{tool} {what}"

    def lines(self) -> list[list[str]]:
        return [line.split("\t") for line in self._file.read_text().splitlines()] if self._file.exists() else []

    def has(self, tool: str, what: str) -> bool:
        return any(line[:2] == [tool, what] for line in self.lines())

    def sent(self) -> Counter[tuple[str, str]]:
        return Counter((tool, what) for tool, what, *_ in self.lines())

    def arrived(self) -> Counter[tuple[str, str]]:
        """As the remote counts: one key is one request."""
        return Counter((tool, what) for tool, what, _ in {(line[0], line[1], line[2]) for line in self.lines()})


class Fault(Exception):
    """A request that ended in an error nobody declared."""


class Agent:
    """Runs from the top in every life; `story` says which effects it performs."""

    def __init__(self, url: str | None, directory: Path, story: Callable[[Agent, Any], None]) -> None:
        self.kept = directory / "kept"
        self.place = directory / "place"
        self.url = url or str(self.place / "standfast.db")
        self.story = story
        self.number = 0
        self.words = ""
        self.place.mkdir()

    # One schedule after another. Without a server's url, each begins with a store nobody has used;
    # on a server each has its own session. Its world is its own in either case.

    def reset(self) -> None:
        if (self.kept / "made").exists():
            self.number = 1
            self._put_back("made")
        else:
            self.number += 1

    def keep(self, crash: int) -> None:
        shutil.copytree(self.place, self.kept / str(crash), dirs_exist_ok=True)

    def restore(self, crash: int) -> None:
        self._put_back(str(crash))

    def _put_back(self, name: str) -> None:
        shutil.rmtree(self.place)
        shutil.copytree(self.kept / name, self.place)

    @property
    def world(self) -> World:
        return World(self.place / f"world-{self.number}.log")

    @property
    def told(self) -> World:
        """What lives were told is done, in books of its own."""
        return World(self.place / f"told-{self.number}.log")

    @property
    def found(self) -> Path:
        return self.place / f"found-{self.number}.json"

    @property
    def key(self) -> str:
        return f"schedule-{self.number}"

    def open(self) -> standfast.Standfast:
        return standfast.open(self.url, data_dir=self.place)

    # Lives. Each of them is a process of its own.

    def run(self) -> None:
        with self.open() as sf:
            self.live(sf)

    def recover(self) -> None:
        """Start again until it is done; a person settles what only a person can."""
        with self.open() as sf:
            self.remembers(sf)
            for _ in range(LIVES_MAX):
                if self.live(sf):
                    break
                self.settle(sf)
            else:
                raise AssertionError("it never ends")
        with self.open() as sf:  # what the next one will find
            effects = [effect._asdict() for effect in sf.effects.list(session=self.key, limit=1000)]
            found = {"effects": effects, "session": sf.sessions.get(self.key).state}
        self.found.write_text(json.dumps(found, default=str))

    def live(self, sf: standfast.Standfast) -> bool:
        self.words = f"words of process {os.getpid()}"
        try:
            with sf.session(self.key) as s:
                self.story(self, s)
        except (standfast.EffectInDoubt, standfast.ApprovalRequired, standfast.NotApplied, Fault):
            return False
        return True

    def remembers(self, sf: standfast.Standfast) -> None:
        """What an earlier life was told is done must be recorded as done, before anybody settles anything."""
        told = {tuple(line[:2]) for line in self.told.lines()}
        done = {
            (effect.tool, effect.intent["what"])
            for effect in (sf.effects.list(session=self.key, limit=1000) if told else [])
            if effect.state == "acknowledged"
        }
        assert told <= done, f"said to be done, and not recorded: {told - done}"

    def settle(self, sf: standfast.Standfast) -> None:
        for effect in sf.effects.in_doubt(limit=1000):
            if effect.session_id == sf.sessions.get(self.key).id:
                what = effect.intent["what"]
                there = self.world.has(effect.tool, what)
                answer, result = ("applied", f"{effect.tool} {what}") if there else ("not_applied", None)
                sf.effects.resolve(effect.id, answer, evidence="the world's books", result=result)
        for approval in sf.approvals.list(state="requested", session=self.key):
            sf.approvals.grant(approval.id, approver="a person")

    def warm(self) -> None:
        """One whole life before anybody is killed: it makes the store, and tells which modules lives need.

        The parent imports them, so that a child is a fork and nothing more; it opens no store itself.
        """
        names = self.place / "modules"

        def life() -> None:
            self.recover()
            names.write_text("\n".join(sys.modules))

        crash._live(life, 0, crash.Schedule(), 60.0)
        for name in names.read_text().splitlines():
            if name not in sys.modules and name.partition(".")[0] != "__mp_main__":
                with suppress(ImportError):
                    importlib.import_module(name)
        serial.clean("\x1b[0m\u00e9")  # its patterns are compiled once, here
        if not self.url.startswith("postgresql:"):
            shutil.copytree(self.place, self.kept / "made")

    # What the stories are made of.

    def plain(self, s: Any, what: str, **options: Any) -> str:
        return self._perform(s, "plain", what, **options)

    def probed(self, s: Any, what: str, **options: Any) -> str:
        def probe(call: standfast.Call) -> Any:
            there = self.world.has("probed", call.intent["what"])
            return standfast.Applied(f"probed {call.intent['what']}") if there else standfast.NotApplied()

        return self._perform(s, "probed", what, probe=probe, **options)

    def idempotent(self, s: Any, what: str, **options: Any) -> str:
        return self._perform(s, "idempotent", what, idempotent=True, **options)

    def _perform(self, s: Any, tool: str, what: str, do: Any = None, **options: Any) -> str:
        def send(call: standfast.Call) -> str:
            return self.world.receive(tool, what, call.key, call.intent["words"])

        result: str = s.effect(tool, {"what": what, "words": self.words}, by="what", do=do or send, **options)
        assert self.world.has(tool, what), "what is said to be done is not in the world's books"
        self.told.receive(tool, what, "", "")
        return result

    # The oracle.

    def check(self, schedule: crash.Schedule) -> None:
        found = json.loads(self.found.read_text())
        assert found["session"] == "completed"
        assert found["effects"], "nothing was recorded"
        arrived, sent = self.world.arrived(), self.world.sent()
        known = [(effect["tool"], effect["intent"]["what"]) for effect in found["effects"]]
        for what, effect in zip(known, found["effects"], strict=True):
            assert effect["state"] == "acknowledged", f"{what} is {effect['state']}"
            assert arrived[what] == 1, f"{what} is acknowledged and arrived {arrived[what]} times"
            assert effect["result"] == " ".join(what), f"{what} is recorded with the result of something else"
            if effect["tool"] != "idempotent":
                assert sent[what] == 1, f"{what} was sent {sent[what]} times"
        assert set(arrived) == set(known), "sent, and not recorded"
        for key, words in _words(self.world).items():
            assert len(words) == 1, f"{key} was sent with {len(words)} wordings"


def _words(world: World) -> dict[str, set[str]]:
    """The wordings each key was sent with: a remote refuses a key that comes with other words."""
    found: dict[str, set[str]] = {}
    for tool, _, key, words in world.lines():
        if tool == "idempotent":
            found.setdefault(key, set()).add(words)
    return found


# -- stories -----------------------------------------------------------------------------------------------


def three_kinds(agent: Agent, s: Any) -> None:
    agent.plain(s, "a")
    agent.probed(s, "b")
    agent.idempotent(s, "c")


def only_plain(agent: Agent, s: Any) -> None:
    agent.plain(s, "a")
    agent.plain(s, "b")


def only_probed(agent: Agent, s: Any) -> None:
    agent.probed(s, "a")
    agent.probed(s, "b")


def only_idempotent(agent: Agent, s: Any) -> None:
    agent.idempotent(s, "a")
    agent.idempotent(s, "b")


def failing(agent: Agent, s: Any) -> None:
    """The first time nothing is sent, and it says so; or it is sent and the answer is lost."""

    def refused(call: standfast.Call) -> str:
        if call.attempt == 1:
            raise standfast.NotApplied("no route")
        return agent.world.receive("plain", "a", call.key, call.intent["words"])

    def lost(tool: str) -> Callable[[standfast.Call], str]:
        def send(call: standfast.Call) -> str:
            answer = agent.world.receive(tool, "b", call.key, call.intent["words"])
            if call.attempt == 1:
                raise Fault("the answer was lost")
            return answer

        return send

    agent.plain(s, "a", do=refused)
    agent.probed(s, "b", do=lost("probed"))
    agent.idempotent(s, "b", do=lost("idempotent"))


def shrugging(agent: Agent, s: Any) -> None:
    """Probes that cannot tell: a person has to."""

    def broken(call: standfast.Call) -> None:
        raise TimeoutError("no answer")

    agent._perform(s, "plain", "a", probe=lambda call: standfast.Unknown())
    agent._perform(s, "plain", "b", probe=broken)


def approved(agent: Agent, s: Any) -> None:
    agent.words = "words a person has read"  # other words would need another yes
    agent.plain(s, "a", approve=True)
    agent.probed(s, "b", approve=True)


STORIES: dict[str, Callable[[Agent, Any], None]] = {
    "three_kinds": three_kinds,
    "only_plain": only_plain,
    "only_probed": only_probed,
    "only_idempotent": only_idempotent,
    "failing": failing,
    "shrugging": shrugging,
    "approved": approved,
}


def swept(directory: Path, story: str, schedules: int, *, url: str | None = None, seed: int = 0) -> int:
    """How many schedules were played; AssertionError for the first that ends wrong."""
    agent = Agent(url, directory, STORIES[story])
    agent.warm()
    copies: dict[str, Any] = {} if url else {"keep": agent.keep, "restore": agent.restore}
    return crash.sweep(
        agent.run,
        agent.recover,
        agent.check,
        reset=agent.reset,
        check_in_parent=True,
        max_schedules=schedules,
        seed=seed,
        **copies,
    )


def sweep(story: str, place: str, schedules: int, url: str | None = None, seed: int = 0) -> None:
    """In a child, which is small and forks quickly: say how many were played."""
    say(swept(Path(place), story, schedules, url=url, seed=seed))
