"""Killed at every crash point while tasks are reported, claimed, changed, done and swept; and again in the recovery.

The oracle is a file outside the store: every try and every acknowledgement. After every kill no acknowledged write is
missing and every change was tried. Each episode is closed once, by its last holder. The row and the journal agree.
"""

from __future__ import annotations

from collections import Counter

import standfast
from standfast.crash import Schedule
from standfast.record.tasks import Task
from standfast_prove.crashes.world import World

TOPICS = ("parser", "docs")


class Tasks(World):
    """A source that sweeps, a person who snoozes tasks, and a worker who does the rest."""

    def live(self) -> None:
        """The program. Every process runs it from the top."""
        with self.open() as sf:
            for topic in TOPICS:
                self.acked(f"add {topic}", lambda topic=topic: sf.tasks.add(topic, priority=1))  # type: ignore[misc]
            self.acked("sweep", lambda: sf.tasks.sweep("lint", seen=["unused import"], absent_max=1))
            self.acked("sweep", lambda: sf.tasks.sweep("lint", seen=[], absent_max=1))
            parser = sf.tasks.add("parser")
            self.acked("edit", lambda: sf.tasks.edit(parser.id, priority=0))
            self.acked("snooze", lambda: sf.tasks.snooze(parser.id, for_="1h"))
            self.acked("reopen", lambda: sf.tasks.reopen(parser.id))
            first = sf.tasks.claim()
            if first is not None:
                sf.tasks.release(first)
            while task := sf.tasks.claim():
                self.tell(f"work {task.title} {task.id} {task.fence}")
                self.acked(f"done {task.id}", lambda task=task: sf.tasks.done(task, result=task.fence))  # type: ignore[misc]

    def check(self, schedule: Schedule) -> None:
        noted = self.noted()
        with self.open() as sf:
            lives = sf.tasks.list(state="any", limit=1000)
            assert sf.tasks.list() == []
            for topic in (*TOPICS, "unused import"):
                self.check_lives(sf, [task for task in lives if task.title == topic][::-1])
            for topic in TOPICS:
                seen = sum(task.occurrences for task in lives if task.title == topic)
                extra = seen if topic == "parser" else 0  # `live` reports it again without a note
                assert noted[f"acked add {topic}"] <= seen <= noted[f"tried add {topic}"] + extra
            (swept,) = sf.rows("SELECT n FROM sweep WHERE scope = :scope", {"scope": self.name})
            assert noted["acked sweep"] <= swept["n"] <= noted["tried sweep"]
            closed = {task.id for task in lives}
            assert {line.split()[2] for line in noted if line.startswith("acked done ")} <= closed
            worked = Counter(line.split()[2] for line in noted if line.startswith("work "))
            acked = Counter(line.split()[2] for line in noted if line.startswith("acked done "))
            assert set(acked.values()) <= {1}, f"{schedule}: acknowledged as done twice: {worked}"
        self.sound()

    def check_lives(self, sf: standfast.Standfast, lives: list[Task]) -> None:
        assert [task.episode for task in lives] == list(range(1, len(lives) + 1))
        for task in lives:
            events = sf.tasks.history(task, limit=1000)
            types = Counter(event.type for event in events)
            assert task.occurrences == types["task.opened"] + types["task.seen"]
            assert (types["task.opened"], types["task.closed"]) == (1, 1)
            fenced_off = sum("fenced_off" in (event.data or {}) for event in events)  # claimed by its snoozer
            assert task.fence == types["task.claimed"] + types["task.taken_over"] + fenced_off
            assert task.holder is None
            if task.result is not None:
                assert task.result == task.fence  # its last holder
            assert [event.state for event in events][-1] == "closed"
