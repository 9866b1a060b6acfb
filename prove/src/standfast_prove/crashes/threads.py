"""Killed at every crash point while a thread grows, forks, is copied, pruned and deleted; and again in the recovery.

The oracle is a file outside the store: the acknowledged checkpoints and writes. After every kill each of them is there,
unchanged, and every checkpoint can be made from its rows. A deleted thread has no rows left, and a pruned checkpoint
stays deleted.
"""

from __future__ import annotations

import standfast
from standfast.crash import Schedule
from standfast.record.items import Change
from standfast.record.threads import Write
from standfast_prove.crashes.world import World
from standfast_prove.raising import raising

STEPS = 4


def value(thread: str, step: int) -> bytes:
    return b"".join(f"{thread} said {n}, at some length. ".encode() * 3 for n in range(step + 1))


class Threads(World):
    """A thread that stays, and one that is copied, pruned and deleted."""

    def grow(self, sf: standfast.Standfast, thread: str) -> None:
        for step in range(STEPS):
            sf.threads.put(
                thread,
                f"c{step}",
                header=b"header %d" % step,
                parent_id=f"c{step - 1}" if step else None,
                values={"said": True, "fixed": step == 0},
                value_of=lambda channel, step=step: (  # type: ignore[misc]
                    "text",
                    value(thread, step) if channel == "said" else b"fixed " * 100,
                ),
                run_id=f"{self.name}-{thread}-{step}",
            )
            self.tell(f"put {thread} c{step}")
            writes = [Write("task", "", n, "said", ("text", b"%d" % n)) for n in range(2)]
            sf.threads.put_writes(thread, f"c{step}", writes)
            self.tell(f"wrote {thread} c{step}")

    def live(self) -> None:
        """The program. Every process runs it from the top."""
        with self.open() as sf:
            self.grow(sf, "stays")
            self.grow(sf, "goes")
            sf.threads.delete_runs([f"{self.name}-goes-{STEPS - 1}"])
            sf.threads.copy("goes", "copy")
            self.tell("copied")
            sf.threads.prune("goes")
            sf.threads.delete("goes")
            self.tell("deleted")
            for n in (1, 2):  # an item has the vectors of its current text, never those of an earlier one
                means = {"left": {"text": [n, 1.0]}, "right": {"text": [1.0, n], "more": [1.0, -1.0]}}
                sf.items.change([Change(("a",), key, {"n": n}, vectors=means[key]) for key in means])

    def check(self, schedule: Schedule) -> None:
        acked = set(self.lines())
        with self.open() as sf:
            for thread, steps in (("stays", STEPS), ("copy", STEPS - 1)):
                found = {one.id: one for one in sf.threads.list(thread)}
                assert len(found) == steps
                for step in range(steps):
                    one = found[f"c{step}"]
                    source = "goes" if thread == "copy" else thread
                    assert one.values["said"] == ("text", value(source, step)), f"{schedule}: {thread} {one.id}"
                    assert one.values["fixed"] == ("text", b"fixed " * 100)
                    assert [write.idx for write in one.writes] == [0, 1]
            assert sf.threads.get("goes") is None
            gone = sf.rows(
                "SELECT COUNT(*) AS n FROM thread t, thread_value v WHERE t.key = 'goes' AND t.scope = :scope"
                " AND v.thread_seq = t.seq",
                {"scope": self.name},
            )
            assert [row["n"] for row in gone] == [0]
            with raising(standfast.Conflict, match="was deleted"):
                sf.threads.put_writes("goes", "c9", [Write("late", "", 0, "said", ("text", b""))])
            assert [item.key for item in sf.items.search(("a",))] == ["left", "right"]
            near = sf.items.nearest(("a",), [2.0, 1.0])
            assert [(one.item.key, round(one.nearness, 3)) for one in near] == [("left", 1.0), ("right", 0.8)]
            assert f"put stays c{STEPS - 1}" in acked
        self.sound()
