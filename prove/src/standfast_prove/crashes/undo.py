"""Killed at every crash point while a task is edited, the edit is undone, and digests of the journal are made.

The oracle is a file outside the store: the acknowledged edits and undos. A change and its before-image are there
together or not at all, so every stored edit can be undone. Every digest agrees with the journal.
"""

from __future__ import annotations

from standfast.core import digests
from standfast.crash import Schedule
from standfast_prove.campaigns.digests import short_stretches
from standfast_prove.crashes.world import World

STRETCH = 5


class Undone(World):
    """One task and one value. Each process changes both, undoes both, and extends the digests."""

    def live(self) -> None:
        with short_stretches(STRETCH), self.open() as sf:
            task = sf.tasks.add("undo it", fingerprint=self.name, priority=2)
            if sf.tasks.get(task.id).priority == 2:  # otherwise the earlier process was killed before it undid the edit
                sf.tasks.edit(task.id, priority=1)
            self.acked("edit", lambda: sf.undo(task.id))
            if sf.state.list(after="") == [] or sf.state.get(self.name).value == "before":
                sf.state.set(self.name, "before")
                sf.state.set(self.name, "after")
            self.acked("set", lambda: sf.undo(self.name))
            digests.extend(sf._store)
        self.tell("lived")

    def check(self, schedule: Schedule) -> None:
        with self.open() as sf:
            assert sf.tasks.get(self.name).priority == 2, f"{schedule}: an edit that was undone is there"
            assert sf.state.get(self.name).value == "before", f"{schedule}: a value that was undone is there"
            events = list(sf.rows("SELECT seq FROM event WHERE type = 'task.edited' AND scope = :s", {"s": self.name}))
            for event in events:
                (row,) = sf.rows("SELECT count(*) AS n FROM removed WHERE event_seq = :seq", {"seq": event["seq"]})
                assert row["n"] == 1, f"{schedule}: an edit has {row['n']} before-images"
            wrong = "SELECT id FROM removed WHERE event_seq IS NULL OR event_seq NOT IN (SELECT seq FROM event)"
            assert list(sf.rows(wrong)) == [], f"{schedule}: an image belongs to no change"
            with short_stretches(STRETCH):
                assert [one.text for one in sf.journal.check().findings] == [], f"{schedule}: a digest contradicts"
        self.sound()
