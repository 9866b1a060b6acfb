"""Imports killed at every crash point they pass, and at a sample of the points of their recovery: the seed's."""

from __future__ import annotations

from pathlib import Path

from standfast.prove.faults.children import Child
from standfast.prove.outcome import Outcome


def run(place: Path, *, schedules: int, seed: int = 0) -> Outcome:
    outcome = Outcome("imports killed")
    with Child("tests.crash.test_import_sweep:sweep", place=str(place), schedules=schedules, seed=seed) as child:
        try:
            (played,) = child.end(3600)
            outcome.count("schedules", int(played))
        except AssertionError as error:
            outcome.refuse(error, "imports")
    return outcome
