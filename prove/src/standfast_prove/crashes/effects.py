"""A small agent, an outside system that records its requests, and an oracle that compares them with the store.

The outside system is a file. `do` appends to it with one write, and the store does not know it. Each process words its
requests differently, as an LLM would. A person settles effects in doubt by looking at the outside system.

    plain        an effect in doubt is settled by a person
    probed       an effect in doubt is settled by its probe
    idempotent   an effect in doubt is sent again with the same key; the outside system counts each key once, and
                 refuses a key that comes with other arguments
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import standfast
from standfast.crash import Schedule
from standfast_prove.crashes.sweeping import sweep
from standfast_prove.crashes.world import World

LIVES_MAX = 8


class Books:
    """Append-only files outside the store, with one line for each request that arrived: `tool what key words`."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def receive(self, tool: str, what: str, key: str, words: str) -> str:
        """A request arrives and gets its line. The same request gets the same answer."""
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
        """The number of requests as the remote counts them: one per key."""
        return Counter((tool, what) for tool, what, _ in {(line[0], line[1], line[2]) for line in self.lines()})


class Fault(Exception):
    """A request that ended in an undeclared error."""


class Agent(World):
    """Every process runs it from the top. `story` names the effects that it performs."""

    words = ""

    def story(self, s: Any) -> None:
        raise NotImplementedError

    @property
    def world(self) -> Books:
        return Books(self.now / "world.log")

    @property
    def books(self) -> Books:
        """Effects whose acknowledgement a process received."""
        return Books(self.now / "told.log")

    @property
    def key(self) -> str:
        return self.name

    # The processes of the program.

    def live(self) -> None:
        with self.open() as sf:
            self.tried(sf)

    def recover(self) -> None:
        """Start again until the program is done. A person settles effects in doubt that have no probe."""
        with self.open() as sf:
            self.remembers(sf)
            for _ in range(LIVES_MAX):
                if self.tried(sf):
                    return
                self.settle(sf)
        raise AssertionError("it never ends")

    def tried(self, sf: standfast.Standfast) -> bool:
        self.words = f"words of process {os.getpid()}"
        try:
            with sf.session(self.key) as s:
                self.story(s)
        except (standfast.EffectInDoubt, standfast.ApprovalRequired, standfast.NotApplied, Fault):
            return False
        return True

    def remembers(self, sf: standfast.Standfast) -> None:
        """An effect that an earlier process acknowledged must be recorded as done, before any doubt is settled."""
        acked = {tuple(line[:2]) for line in self.books.lines()}
        done = {
            (effect.tool, effect.intent["what"])
            for effect in (sf.effects.list(session=self.key, limit=1000) if acked else [])
            if effect.state == "acknowledged"
        }
        assert acked <= done, f"said to be done, and not recorded: {acked - done}"

    def settle(self, sf: standfast.Standfast) -> None:
        for effect in sf.effects.in_doubt(limit=1000):
            if effect.session_id == sf.sessions.get(self.key).id:
                what = effect.intent["what"]
                there = self.world.has(effect.tool, what)
                answer, result = ("applied", f"{effect.tool} {what}") if there else ("not_applied", None)
                sf.effects.resolve(effect.id, answer, evidence="the world's books", result=result)
        for approval in sf.approvals.list(state="requested", session=self.key):
            sf.approvals.grant(approval.id, approver="a person")

    # The parts of the stories.

    def plain(self, s: Any, what: str, **options: Any) -> str:
        return self._perform(s, "plain", what, **options)

    def probed(self, s: Any, what: str, **options: Any) -> str:
        def probe(call: standfast.Call) -> Any:
            there = self.world.has("probed", call.intent["what"])
            return standfast.Applied(f"probed {call.intent['what']}") if there else standfast.NotApplied()

        # By now all requests of killed processes have arrived.
        return self._perform(s, "probed", what, probe=probe, settle=0, **options)

    def idempotent(self, s: Any, what: str, **options: Any) -> str:
        return self._perform(s, "idempotent", what, idempotent=True, **options)

    def _perform(self, s: Any, tool: str, what: str, do: Any = None, **options: Any) -> str:
        def send(call: standfast.Call) -> str:
            return self.world.receive(tool, what, call.key, call.intent["words"])

        result: str = s.effect(tool, {"what": what, "words": self.words}, by="what", do=do or send, **options)
        assert self.world.has(tool, what), "an effect that was reported as done never arrived"
        self.books.receive(tool, what, "", "")
        return result

    # The oracle.

    def check(self, schedule: Schedule) -> None:
        with self.open() as sf:  # the next process finds the effect in doubt
            effects = sf.effects.list(session=self.key, limit=1000)
            assert sf.sessions.get(self.key).state == "completed"
        assert effects, "nothing was recorded"
        arrived, sent = self.world.arrived(), self.world.sent()
        known = [(effect.tool, effect.intent["what"]) for effect in effects]
        for what, effect in zip(known, effects, strict=True):
            assert effect.state == "acknowledged", f"{what} is {effect.state}"
            assert arrived[what] == 1, f"{what} is acknowledged and arrived {arrived[what]} times"
            assert effect.result == " ".join(what), f"{what} is recorded with the result of something else"
            if effect.tool != "idempotent":
                assert sent[what] == 1, f"{what} was sent {sent[what]} times"
        assert set(arrived) == set(known), "sent, and not recorded"
        for key, words in _words(self.world).items():
            assert len(words) == 1, f"{key} was sent with {len(words)} wordings"


def _words(world: Books) -> dict[str, set[str]]:
    """The arguments of the requests with each key. A remote refuses a known key with other arguments."""
    found: dict[str, set[str]] = {}
    for tool, _, key, words in world.lines():
        if tool == "idempotent":
            found.setdefault(key, set()).add(words)
    return found


# -- stories -----------------------------------------------------------------------------------------------


class ThreeKinds(Agent):
    def story(self, s: Any) -> None:
        self.plain(s, "a")
        self.probed(s, "b")
        self.idempotent(s, "c")


class OnlyPlain(Agent):
    def story(self, s: Any) -> None:
        self.plain(s, "a")
        self.plain(s, "b")


class OnlyProbed(Agent):
    def story(self, s: Any) -> None:
        self.probed(s, "a")
        self.probed(s, "b")


class OnlyIdempotent(Agent):
    def story(self, s: Any) -> None:
        self.idempotent(s, "a")
        self.idempotent(s, "b")


class Failing(Agent):
    """The first call raises NotApplied, or it sends the request and loses the answer."""

    def story(self, s: Any) -> None:
        self.plain(s, "a", do=self.refused)
        self.probed(s, "b", do=self.lost("probed"))
        self.idempotent(s, "b", do=self.lost("idempotent"))

    def refused(self, call: standfast.Call) -> str:
        if call.attempt == 1:
            raise standfast.NotApplied("no route")
        return self.world.receive("plain", "a", call.key, call.intent["words"])

    def lost(self, tool: str) -> Callable[[standfast.Call], str]:
        def send(call: standfast.Call) -> str:
            answer = self.world.receive(tool, "b", call.key, call.intent["words"])
            if call.attempt == 1:
                raise Fault("the answer was lost")
            return answer

        return send


class Shrugging(Agent):
    """Probes that answer Unknown, so a person has to settle the doubt."""

    def story(self, s: Any) -> None:
        def broken(call: standfast.Call) -> None:
            raise TimeoutError("no answer")

        self._perform(s, "plain", "a", probe=lambda call: standfast.Unknown())
        self._perform(s, "plain", "b", probe=broken)


class Approved(Agent):
    def story(self, s: Any) -> None:
        self.words = "words a person has read"  # other arguments would need another approval
        self.plain(s, "a", approve=True)
        self.probed(s, "b", approve=True)


STORIES: dict[str, type[Agent]] = {
    "three_kinds": ThreeKinds,
    "only_plain": OnlyPlain,
    "only_probed": OnlyProbed,
    "only_idempotent": OnlyIdempotent,
    "failing": Failing,
    "shrugging": Shrugging,
    "approved": Approved,
}


def swept(directory: Path, story: str, schedules: int, *, url: str | None = None, seed: int = 0) -> int:
    """Play every first crash and some second crashes, and return their number. Raises AssertionError if a schedule ends
    wrong.
    """
    return sweep(STORIES[story](directory / story, url), seconds=schedules, seed=seed).schedules
