"""Sessions: every schedule has the same end, and nothing is lost or recorded twice.

A step writes a line when it runs; the program notes each answer at once. The oracle
compares both with the store.
"""

from __future__ import annotations

from collections import Counter

from standfast.crash import Schedule
from standfast_prove.crashes.world import World

STEPS = ("plan", "patch")


class Sessions(World):
    """An agent. Each process runs it from the top."""

    def work(self, name: str, life: int) -> dict[str, str]:
        self.tell(f"world {name}")
        return {"made": f"{name} in life {life}"}

    def live(self) -> None:
        life = self.lines().count("life")
        self.tell("life")
        with self.open() as sf:
            with sf.session(self.name) as s:
                s.say("user", "please", key="asked")
                self.tell("acked message asked")
                made: dict[str, str] = {}
                for name in STEPS:
                    made = s.step(name, lambda name=name: self.work(name, life), returns=dict)
                    self.tell(f"acked step {name} {made['made']}")
                reviewer = s.subagent("reviewer")
                reviewer.say("assistant", made, key="reviewed")
                s.state["branch"] = "fix-42"
                self.tell("acked state branch")
                s.cursor = "done"
            self.tell("acked session completed")

    def check(self, schedule: Schedule) -> None:
        acked = self.booked("acked")
        with self.open() as sf:
            record = sf.sessions.get(self.name)
            assert (record.state, record.holder, record.cursor) == ("completed", None, "done"), record
            assert [m.content for m in sf.sessions.messages(self.name)] == ["please"]
            reviewed = sf.sessions.messages(self.name, node="reviewer")
            recorded = sf.rows("SELECT name, result FROM step WHERE session_id = :id", {"id": record.id})
            results = {row["name"]: row["result"] for row in recorded}
            assert len(reviewed) == 1
            assert sf.state.get("branch", namespace=record.id).value == "fix-42"
            taken = [event.type for event in sf.journal.about(record.id)].count("session.taken_over")
        assert sorted(results) == sorted(STEPS)
        # A result never changes: every process that got a result got the recorded one.
        for line in acked:
            kind, _, rest = line.partition(" ")
            if kind == "step":
                name, _, made = rest.partition(" ")
                assert made in results[name], (line, results)
        # A step may run again only if a process died between running and recording it.
        ran = Counter(self.booked("world"))
        assert set(ran) == set(STEPS)
        assert sum(ran.values()) <= len(STEPS) + len(schedule)
        assert taken <= len(schedule)
        self.sound()

    def booked(self, word: str) -> list[str]:
        return [line.partition(" ")[2] for line in self.lines() if line.startswith(f"{word} ")]
