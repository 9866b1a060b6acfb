"""Each feature is killed at every crash point that it passes, and again while it recovers.

`crashes/` has the programs. A run of one seed plays some first crashes and, after each, some second crashes. The next
seed plays other crashes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from standfast_prove.crashes.resources import CONTROL, RESOURCES, world
from standfast_prove.crashes.sweeping import sweep
from standfast_prove.faults.children import Child, say
from standfast_prove.outcome import Outcome


def run(
    place: Path,
    *,
    resource: str,
    firsts: int | None,
    seconds: int | None,
    at: str = "",
    url: str | None = None,
    seed: int = 0,
) -> Outcome:
    """Sweep every crash program of a resource, in a small process that forks quickly. First crashes are at points that
    begin with `at`.
    """
    outcome = Outcome(f"crashes in {resource}")
    asked: dict[str, Any] = {"resource": resource, "place": str(place), "firsts": firsts, "seconds": seconds, "at": at}
    with Child("standfast_prove.campaigns.crashes:swept", **asked, url=url, seed=seed) as child:
        for line in child.end(3600):
            played = json.loads(line)
            outcome.bad += played.pop("bad")
            for what, number in played.items():
                outcome.count(what, number)
    return outcome


def swept(
    resource: str, place: str, firsts: int | None, seconds: int | None, at: str, url: str | None, seed: int
) -> None:
    """In a child: report for each crash program the played schedules and the violations."""
    for name in CONTROL if resource == "control" else RESOURCES[resource]:
        made = world(name, Path(place), url)
        if url is None or made.on_a_server:
            try:
                found = sweep(made, firsts=firsts, seconds=seconds, seed=seed, at=at)
                played = {"schedules": found.schedules, "killed twice": found.second_crashes, "bad": list[str]()}
            except AssertionError as error:
                schedule, _, words = str(error).partition("\n")
                played = {"schedules": 1, "bad": [f"{name}, {schedule} {words.strip()[-400:]}"]}
            say(json.dumps(played))
