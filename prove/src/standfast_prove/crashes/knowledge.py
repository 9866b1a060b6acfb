"""Killed at every crash point while an agent adds, replaces and forgets facts; and again in the recovery.

After every kill each acknowledged fact is there once, the forgotten one is not, and the index of words agrees.
"""

from __future__ import annotations

from standfast.crash import Schedule
from standfast_prove.crashes.world import World


class Facts(World):
    """An agent that learns three facts, replaces one and forgets one."""

    def live(self) -> None:
        """The program. Every process runs it from the top."""
        with self.open() as sf:
            facts = sf.knowledge
            old = facts.add("CI needs node 20", source="https://ci.test/1")
            self.acked("replaced", lambda: facts.add("CI needs node 22", supersedes=old.id, embedding=[1.0, 2.0]))
            wrong = facts.add("the moon is green")
            self.acked("forgotten", lambda: facts.forget(wrong.id))

    def check(self, schedule: Schedule) -> None:
        with self.open() as sf:
            listed = sorted(one.text for one in sf.knowledge.list(superseded=True))
            assert listed == ["CI needs node 20", "CI needs node 22"], schedule
            assert [one.text for one in sf.knowledge.search("node moon")] == ["CI needs node 22"], schedule
            assert [one.text for one in sf.knowledge.search("", embedding=[1.0, 2.0])] == ["CI needs node 22"]
        self.sound()
