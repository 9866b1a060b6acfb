"""A daemon is killed at every crash point between a due slot and the recorded end of its run. The next daemon is killed
too.

The oracle is a file that the commands append to. After every kill each slot was run exactly once, its run is done with
the output that the command wrote, and no process or file is left behind.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import standfast
from standfast import when
from standfast.clock import MINUTE_US, SECOND_US, SYSTEM
from standfast.config.actor import account
from standfast.crash import Schedule
from standfast.daemon.jobs import Sweeping
from standfast.daemon.leader_lease import name_of
from standfast_prove.crashes.world import World
from standfast_prove.faults.daemons import Later, daemon, noted, noting, opened, until

LOOPS = ("quick", "slow")


class Scheduled(World):
    """Two loops with one slot each. The daemon starts after the slot."""

    def __init__(self, place: Path, url: str | None = None) -> None:
        super().__init__(place, url)
        self.at_us = 0

    @property
    def data(self) -> Path:
        """One directory for each schedule, because a keeper outlives its killed daemon and continues to write there."""
        return self.place / f"data{self.number}"

    @property
    def oracle(self) -> Path:
        return self.place / f"oracle{self.number}"

    def make(self) -> None:
        super().make()
        self.at_us = _soon()

    def restore(self) -> bool:
        return False

    def reset(self) -> None:
        super().reset()
        self.at_us = _soon()

    def names(self) -> list[str]:
        return [f"{name}{self.number}" for name in LOOPS]

    def live(self) -> None:
        """The program. Every process runs it from the top."""
        with opened(self.url, self.data) as sf:
            for name, then in zip(self.names(), ("echo done", "sleep 0.02; echo done"), strict=True):
                sf.loops.add(name, noting(self.oracle, then), at=when.utc(self.at_us), cwd="/")
        with opened(self.url, self.data, clock=Later()) as sf:
            serving = daemon(sf)
            serving.tick()
            until(lambda: self.over(sf), lambda: serving.tick(woken=True), every_s=0.002)
            serving.lead.give_back()

    def over(self, sf: standfast.Standfast) -> bool:
        found = [sf.runs.list(name) for name in self.names()]
        return all(runs and all(run.ended_us for run in runs) for runs in found)

    def check(self, schedule: Schedule) -> None:
        assert noted(self.oracle) == Counter({(name, self.at_us): 1 for name in self.names()}), "run once each"
        with opened(self.url, self.data) as sf:
            for name in self.names():
                (run,) = sf.runs.list(name)
                assert (run.state, run.exit_code, run.holder) == ("done", 0, None), run
                assert run.stdout_id is not None
                assert sf.artifacts.get(run.stdout_id) == b"done\n"
            assert sf.runs.left() == []
            assert sf.leases.get(name_of([account()])).holder is None
        assert os.listdir(self.data / "daemon" / "runs") == []
        self.sound()


class Sweeps(World):
    """The daemon's sweep deletes expired values and returns mail of dead readers, each exactly once."""

    def live(self) -> None:
        with self.open() as sf:
            sf.state.set("short", "x", for_="1us")
            self.acked("send", lambda: sf.mail.send("bob", "hello", key="one", attempts_max=30))
            sf.mail.claim("bob")
            sweeping = Sweeping(sf)
            sweeping._due_us = [0] * len(sweeping._due_us)  # later than the longest expiry time
            sweeping.step()

    def check(self, schedule: Schedule) -> None:
        with self.open() as sf:
            sf.state.expire()
            sf.mail.sweep()
            (row,) = sf.rows("SELECT value FROM state WHERE scope = :s AND key = 'short'", {"s": self.name})
            assert row["value"] == "null"
            (mail,) = sf.mail.list("bob", state="any")
            types = Counter(event.type for event in sf.mail.history(mail, limit=1000))
            assert types["mail.sent"] == 1
            assert types["mail.leased"] == mail.attempts
            lost = types["mail.lost"] + types["mail.returned"]
            assert lost in (mail.attempts, mail.attempts - 1), f"{schedule}: {types}"
        self.sound()


def _soon() -> int:
    return (SYSTEM.now_us() // SECOND_US) * SECOND_US + 30 * MINUTE_US
