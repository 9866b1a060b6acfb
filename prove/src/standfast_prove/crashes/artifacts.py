"""Artifacts: each row has its bytes, no bytes are lost, and the collector removes only unreferenced files.

The oracle file has the answers that the caller got. On SQLite the bytes are in files, on a server in rows.
"""

from __future__ import annotations

import random
from typing import ClassVar

import standfast
from standfast import config, handle
from standfast.clock import SYSTEM, ManualClock
from standfast.crash import Schedule
from standfast_prove.crashes.world import World

LARGE = random.Random(0).randbytes(700_000)
SCRATCH = ("again", "large")


class Artifacts(World):
    """A program that puts four artifacts, two of them with the same bytes."""

    def bytes(self) -> dict[str, bytes]:
        """The bytes to put. On a server each schedule has its own bytes, because the store may have those of other
        schedules.
        """
        own = self.name.encode() if self.server else b""
        return {"small": b"small" + own, "again": b"small" + own, "large": LARGE + own, "empty": b""}

    def live(self) -> None:
        with self.open() as sf:
            for name, data in self.bytes().items():
                made = sf.artifacts.put(data, name=name)
                self.tell(f"{made.id} {name}")

    def later(self, hours: int) -> standfast.Standfast:
        clock = ManualClock(SYSTEM.now_us() + hours * 3_600_000_000)
        return handle.connect(config.load(self.url, data_dir=self.data, scope=self.name), clock=clock)

    def check(self, schedule: Schedule) -> None:
        acked, wanted = [line.split() for line in self.lines()], self.bytes()
        with self.open() as sf:
            for id, name in acked:
                assert sf.artifacts.get(id) == wanted[name], f"{name} was acknowledged"
            found = sf.artifacts.list()
            assert sorted(one.name for one in found) == sorted(wanted), "one artifact for each, after the last run"
            assert {id for id, _ in acked} <= {one.id for one in found}
            assert sf.artifacts.verify() == []
        if not self.server:  # on a server the clock of a client cannot move time forward by a day
            self.check_garbage()
        self.sound()

    def check_garbage(self) -> None:
        with self.later(25) as sf:
            collected = sf.artifacts.collect()
            assert (collected.removed, collected.faults) == (0, [])
            assert sf.artifacts.verify() == []
            assert sf.artifacts.collect().garbage == 0


class Collected(Artifacts):
    """A program that runs the collector a day later: it removes scratch files, and the artifacts stay complete."""

    on_a_server: ClassVar[bool] = False

    def make(self) -> None:
        with self.open() as sf:
            for name, data in self.bytes().items():
                sf.artifacts.put(data, name=name, retention="scratch" if name in SCRATCH else "keep")

    def live(self) -> None:
        with self.later(25) as sf:
            sf.artifacts.collect()

    def check(self, schedule: Schedule) -> None:
        with self.later(25) as sf:
            assert sorted(found.name for found in sf.artifacts.list()) == ["empty", "small"]
            assert list(sf.artifacts.collect().as_dict().values()) == [0, 0, 0, []]
            assert sf.artifacts.verify() == []
        self.sound()
