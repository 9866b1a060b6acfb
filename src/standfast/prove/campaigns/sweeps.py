"""Killed at every crash point of the footings, and in a sample of the points of every recovery: the seed's."""

from __future__ import annotations

from pathlib import Path

from standfast.prove.faults.children import Child
from standfast.prove.outcome import Outcome


def run(place: Path, *, schedules: int, seed: int = 0) -> Outcome:
    outcome = Outcome("crash sweep")
    for world in ("writes", "locks", "migrations"):
        (place / world).mkdir()
        with Child(
            "standfast.prove.crashes.footings:sweep",
            world=world,
            place=str(place / world),
            schedules=schedules,
            seed=seed,
        ) as child:
            try:
                (played,) = child.end(3600)
                outcome.count("schedules", int(played))
            except AssertionError as error:
                outcome.refuse(error, world)
    return outcome
