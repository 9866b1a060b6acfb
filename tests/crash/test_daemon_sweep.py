"""A daemon killed at every crash point from a slot that is due to its recorded end; and the next one too.

The oracle is a file the commands themselves append to. Whatever was killed: each slot was run exactly once,
ended as done with the output it wrote, and nothing is left behind.
"""

from __future__ import annotations

import os
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import standfast
from standfast import crash
from standfast.clock import MINUTE_US, SECOND_US, SYSTEM
from standfast.prove.crashes.footings import World
from standfast.prove.faults.daemons import Later, daemon, noted, noting, opened, until

# Loaded once here, or each of hundreds of children would load them again.
for name in (
    "standfast.db.sqlite.registry",
    "standfast.db.postgres.engine",
    "standfast.record.runs",
    "standfast.record.mail",
    "standfast.record.state",
    "standfast.footings.artifacts",
):
    import_module(name)

LOOPS = ("quick", "slow")


class Scheduled(World):
    """Two loops with one moment each; the daemon comes after it."""

    def reset(self) -> None:
        super().reset()
        self.at_us = (SYSTEM.now_us() // SECOND_US) * SECOND_US + 30 * MINUTE_US
        self.data = self.place / f"data{self._number}"

    def names(self) -> list[str]:
        return [f"{name}{self._number}" for name in LOOPS]

    def live(self) -> None:
        """From the top, whatever happened before."""
        with opened(self.url, self.data) as sf:
            for name, then in zip(self.names(), ("echo done", "sleep 0.02; echo done"), strict=True):
                sf.loops.add(name, noting(self.oracle, then), at=self.at_us, cwd="/")
        with opened(self.url, self.data, clock=Later()) as sf:
            serving = daemon(sf)
            serving.tick()
            until(lambda: self.over(sf), lambda: serving.tick(woken=True), every_s=0.002)
            serving.lead.give_back()

    def over(self, sf: standfast.Standfast) -> bool:
        found = [sf.runs.list(name) for name in self.names()]
        return all(runs and all(run.ended_us for run in runs) for runs in found)

    def check(self, schedule: crash.Schedule) -> None:
        assert noted(self.oracle) == Counter({(name, self.at_us): 1 for name in self.names()}), "run once each"
        with opened(self.url, self.data) as sf:
            for name in self.names():
                (run,) = sf.runs.list(name)
                assert (run.state, run.exit_code, run.holder) == ("done", 0, None), run
                assert run.stdout_id is not None
                assert sf.artifacts.get(run.stdout_id) == b"done\n"
            assert sf.runs.left() == []
            assert sf.leases.get("daemon").holder is None
        assert os.listdir(self.data / "daemon" / "runs") == []
        self.sound()


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Scheduled:
    """One engine each; the parent of a sweep never opens the store."""
    place = tmp_path / "place"
    place.mkdir()
    if request.param == "sqlite":
        return Scheduled(str(place / "store" / "standfast.db"), place)
    return Scheduled(request.getfixturevalue("pg_database"), place)


@pytest.mark.parametrize(("world", "count"), [("sqlite", 7), ("postgres", 3)], indirect=["world"])
def test_killed_anywhere_each_slot_is_run_once_and_its_end_recorded(world: Scheduled, count: int) -> None:
    """000-11, 000-37: kill and restart lose no run and double none. A sample; `make prove` has more."""
    assert crash.sweep(world.live, world.live, world.check, reset=world.reset, max_schedules=count) == count


ELSEWHERE = ("daemon.before_drain", "daemon.before_sweep")
"""Passed by the service, and after some time."""
POINTS = [name for name in crash.POINTS if name.startswith("daemon.") and name not in ELSEWHERE]


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_of_its_own_points(world: Scheduled, point: str) -> None:
    world.reset()
    if (pid := os.fork()) == 0:
        crash.arm_at(point)
        world.live()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9, f"{point} was not passed"
    for act in (world.live, lambda: world.check(crash.Schedule((point,)))):
        if (pid := os.fork()) == 0:
            try:
                act()
                os._exit(0)
            except BaseException:  # noqa: BLE001  said in the parent
                import traceback

                traceback.print_exc()
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, f"killed at {point}"
