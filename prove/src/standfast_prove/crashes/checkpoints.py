"""Decisions and checkpoints of a session: each is stored once, before the agent acts on it, and later processes find
it.

Checkpoints only save time. After any kill each acknowledged checkpoint is there and covers the messages that it names.
Every message is there too.
"""

from __future__ import annotations

from typing import Any

import standfast
from standfast.checkpoint.checkpoints import Said
from standfast.crash import Schedule
from standfast_prove.crashes.world import World

LINES = 6
DECISIONS = ("edit the parser", "open a pull request")


class Folds(World):
    """An agent that adds messages, decides, acts, and folds its messages into a checkpoint."""

    def live(self) -> None:
        with self.open() as sf, sf.session(self.name) as s:
            for n in range(1, LINES + 1):
                s.say("user" if n % 2 else "assistant", f"line {n}", key=str(n))
                if n % 3 == 0:
                    self.decide(s, DECISIONS[n // 3 - 1])
                    self.fold(s)
            made = s.checkpoint(summary="all of it", cursor={"line": LINES})
            self.tell(f"checkpoint {made.id}")

    def decide(self, s: Any, what: str) -> None:
        with s.decide(what, why="the test names it", then="patch it") as decision:
            self.tell(f"decided {decision.id} {what}")
            s.effect("patch", {"what": what}, by="what", do=lambda call: self.tell(f"acted {what}"), idempotent=True)
            decision.outcome = "patched"
        self.tell(f"closed {decision.id}")

    def fold(self, s: Any) -> None:
        made = s.fold(lambda messages: " | ".join(_text(message) for message in messages), keep_last=1)
        if made is not None:
            self.tell(f"checkpoint {made.id}")

    def check(self, schedule: Schedule) -> None:
        lines = self.lines()
        with self.open() as sf:
            self.check_decisions(sf, lines)
            made = {one.id: one for one in sf.checkpoints.list(session=self.name, limit=1000)}
            assert {line.split()[1] for line in lines if line.startswith("checkpoint ")} <= made.keys()
            said = sf.sessions.messages(self.name)
            assert [message.content for message in said] == [f"line {n}" for n in range(1, LINES + 1)]
            for one in made.values():
                assert one.summary is not None
                if one.summary != "all of it":
                    assert one.summary == " | ".join(f"line {n}" for n in range(1, one.to_position + 1)), schedule
            newest = sf.checkpoints.context(self.name)
            assert (newest.summary, newest.cursor, newest.messages) == ("all of it", {"line": LINES}, [])
            acked = [event for id in made for event in sf.journal.about(id) if event.type == "checkpoint.added"]
            assert len(acked) == len(made)
        self.sound()

    def check_decisions(self, sf: standfast.Standfast, lines: list[str]) -> None:
        decided = sf.decisions.list(session=self.name, limit=1000)
        assert sorted(one.what for one in decided) == sorted(DECISIONS), "each was decided once"
        for one in decided:
            assert (one.state, one.outcome) == ("done", "patched")
            types = [event.type for event in sf.journal.about(one.id)]
            assert (types.count("decision.made"), types.count("decision.done")) == (1, 1), types
            assert lines.index(f"decided {one.id} {one.what}") < lines.index(f"acted {one.what}"), "acted first"


def _text(message: Said) -> str:
    return str(message.content)
