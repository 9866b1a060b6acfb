"""One room after another, killed at every crash point it passes and again in its recovery: `crashes/` has the worlds.

A run of one seed plays some first crashes and, from each, some second ones; the next seed plays others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from standfast.prove.crashes.rooms import ROOMS, world
from standfast.prove.crashes.sweeping import sweep
from standfast.prove.faults.children import Child, say
from standfast.prove.outcome import Outcome


def run(
    place: Path, *, room: str, firsts: int | None, seconds: int | None, url: str | None = None, seed: int = 0
) -> Outcome:
    """Sweep every world of a room, in a process that is small and forks quickly."""
    outcome = Outcome(f"crashes in {room}")
    asked: dict[str, Any] = {
        "room": room,
        "place": str(place),
        "firsts": firsts,
        "seconds": seconds,
        "url": url,
        "seed": seed,
    }
    with Child("standfast.prove.campaigns.crashes:swept", **asked) as child:
        try:
            played = [line.split() for line in child.end(3600)]
        except AssertionError as error:
            outcome.refuse(error, room)
            return outcome
    for schedules, second_crashes in played:
        outcome.count("schedules", int(schedules))
        outcome.count("killed twice", int(second_crashes))
    return outcome


def swept(room: str, place: str, firsts: int | None, seconds: int | None, url: str | None, seed: int) -> None:
    """In a child: say for each world how many schedules were played."""
    for name in ROOMS[room]:
        made = world(name, Path(place), url)
        if url is None or made.on_a_server:
            found = sweep(made, firsts=firsts, seconds=seconds, seed=seed)
            say(f"{found.schedules} {found.second_crashes}")
