"""Killed at every crash point while one agent asks and another answers, and again in the recovery.

The oracle is a file outside the store: each answer that `ask` returned, and each verdict that the reviewer sent. After
any number of kills every answer is the same, the verdict was sent once, and no mail stays unread.
"""

from __future__ import annotations

import threading

import standfast
from standfast.crash import Schedule
from standfast.record.mail import Mail
from standfast_prove.crashes.world import World


class Asks(World):
    """A coder that asks, and a reviewer in another thread that answers each time with another number."""

    def live(self) -> None:
        with self.open() as sf, self.open() as other:
            over = threading.Event()
            reviewer = threading.Thread(target=self.answer, args=(other, over))
            reviewer.start()
            with sf.session("fix-42", agent="coder") as s:
                self.tell(f"answer {s.ask('reviewer', {'pr': 7}, key='review:7')}")
            over.set()
            reviewer.join()

    def answer(self, sf: standfast.Standfast, over: threading.Event) -> None:
        while not over.is_set():
            sf.mail.answer("reviewer", self.verdict, timeout=0.05)

    def verdict(self, mail: Mail) -> int:
        """Each call returns another number. Only the number of the reply counts."""
        self.tell("call")
        return self.noted()["call"]

    def check(self, schedule: Schedule) -> None:
        answers = {line for line in self.noted() if line.startswith("answer ")}
        assert len(answers) == 1, answers
        with self.open() as sf:
            question = sf.mail.list("reviewer", state="any")
            assert [one.state for one in question] == ["done"]
            replies = sf.mail.list("session:fix-42", state="any")
            assert [one.state for one in replies] == ["done"]
            assert answers == {f"answer {replies[0].body}"}
            assert {one.state for one in sf.sessions.list()} == {"completed"}
        self.sound()
