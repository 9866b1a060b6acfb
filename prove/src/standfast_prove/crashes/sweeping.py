"""Kills a crash program ("world") at the crash points it passes, and its recovery too. Its own oracle checks every end.

A schedule is a crash point where the program is killed with SIGKILL, and perhaps one where the recovery is killed. A
program that passes 100 points has 100 first crashes and 10,000 second crashes, so a run draws from them by its seed.
The first crashes of one seed continue where those of the previous seed ended. The second crashes are drawn at random.
Each start is a new process, forked from one that has run the whole program once and has nothing open.
"""

from __future__ import annotations

import gc
import random
from dataclasses import dataclass, field

from standfast import crash
from standfast.crash import Schedule
from standfast_prove.crashes.world import World

TIMEOUT_S = 60.0


@dataclass
class Swept:
    """The number of played schedules."""

    schedules: int = 0
    second_crashes: int = 0
    points: int = 0
    """The crash points that an undisturbed run passes. Each is the first crash of some schedules."""
    there: int = 0
    """The number of schedules that exist for the played first crashes."""
    passed: set[str] = field(default_factory=set)


def sweep(
    world: World, *, firsts: int | None = None, seconds: int | None = 0, seed: int = 0, at: str | tuple[str, ...] = ""
) -> Swept:
    """Play the run without a kill, `firsts` first crashes and `seconds` second crashes; None means all of them.

    With `at`, first crashes are only at points whose names begin with it. Raises AssertionError with the first schedule
    that ends wrong.
    """
    return _Sweep(world, at).play(firsts, seconds, seed)


class _Sweep:
    def __init__(self, world: World, at: str | tuple[str, ...]) -> None:
        self._world = world
        self._at = at
        self._swept = Swept()
        self._first = Schedule()

    def play(self, firsts: int | None, seconds: int | None, seed: int) -> Swept:
        try:
            self._world.warm()
        except Exception as error:
            raise AssertionError(f"{Schedule()}: {type(error).__name__}: {error}") from error
        gc.freeze()  # otherwise the garbage collector of a child copies these pages
        try:
            swept = self._swept
            points = self._begin(0)
            swept.points = swept.there = len(points)
            self._go_on()
            chosen = _drawn([n for n, name in enumerate(points, 1) if name.startswith(self._at)], firsts, seed)
            for n, kill in enumerate(chosen):
                self._begin(kill)
                self._world.keep()
                there = self._go_on()
                swept.there += there
                wanted = there if seconds is None else _share(seconds, n, len(chosen))
                for again in sorted(random.Random(f"{seed} {kill}").sample(range(1, there + 1), min(wanted, there))):
                    if not self._world.restore():
                        self._begin(kill)
                    self._go_on(again)
            return swept
        finally:
            gc.unfreeze()

    def _begin(self, kill: int) -> list[str]:
        """Run from the top and be killed at that point. Returns the passed points."""
        self._world.reset()
        life = crash._live(self._world.live, kill, Schedule(), TIMEOUT_S)
        self._first = Schedule(life.end)
        self._swept.passed.update(life.points)
        return life.points

    def _go_on(self, kill: int = 0) -> int:
        """Recover, with or without a kill, then recover to the end and check. Returns the points that the recovery
        passed.
        """
        schedule = self._first
        if kill:
            life = crash._live(self._world.recover, kill, schedule, TIMEOUT_S)
            schedule = Schedule(schedule + life.end)
            self._swept.second_crashes += life.killed
        last = crash._live(lambda: self._end(schedule), 0, schedule, TIMEOUT_S)
        self._swept.passed.update(last.points)
        self._swept.schedules += 1
        return len(last.points)

    def _end(self, schedule: Schedule) -> None:
        self._world.recover()
        crash.disarm()
        self._world.check(schedule)


def _drawn(points: list[int], firsts: int | None, seed: int) -> list[int]:
    """The first crashes of this seed. All seeds share one order, so no crash repeats before all were played."""
    if firsts is None or firsts >= len(points):
        return points
    order = random.Random(0).sample(points, len(points))
    return [order[(seed * firsts + n) % len(points)] for n in range(firsts)]


def _share(total: int, n: int, of: int) -> int:
    """The n-th of `parts` nearly equal parts."""
    return total * (n + 1) // of - total * n // of
