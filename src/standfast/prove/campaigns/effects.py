"""Effects killed everywhere, and killed again while they recover: more of the second crashes than a test run has."""

from __future__ import annotations

from pathlib import Path

from standfast.prove.crashes.effects import STORIES
from standfast.prove.faults.children import Child
from standfast.prove.outcome import Outcome


def run(place: Path, *, schedules: int, url: str | None = None, seed: int = 0) -> Outcome:
    """`schedules` of each story, the sample of this seed; all there are if it is large enough."""
    outcome = Outcome("effects")
    for story in STORIES:
        (place / story).mkdir()
        with Child(
            "standfast.prove.crashes.effects:sweep",
            story=story,
            place=str(place / story),
            schedules=schedules,
            url=url,
            seed=seed,
        ) as child:
            try:
                (played,) = child.end(7200)
                outcome.count("schedules", int(played))
            except AssertionError as error:
                outcome.refuse(error, story)
    return outcome
