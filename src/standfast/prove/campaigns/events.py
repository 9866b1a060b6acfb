"""Events from many processes, some killed, with consumers that are killed too; then killed at every crash point."""

from __future__ import annotations

import traceback
from pathlib import Path

from standfast.prove.faults.children import Child, Nursery
from standfast.prove.outcome import Outcome
from tests.test_events_storm import storm


def run(place: Path, *, url: str | None = None, seed: int = 0, rounds: int = 60, kills: int = 25) -> Outcome:
    outcome = Outcome("events")
    with Nursery(words=place / "words") as nursery:
        try:
            scope = f"{place.name} {seed}"
            where = url or str(place / "standfast.db")
            outcome.count("events", storm(nursery, where, place, seed=seed, rounds=rounds, kills=kills, scope=scope))
            outcome.count("kills", kills + 2)
        except AssertionError as error:
            words = traceback.format_exception(error)[-1] + (place / "words").read_text()[-1500:]
            where_it_was = traceback.extract_tb(error.__traceback__)[-1].line
            outcome.refuse(f"{where_it_was}: {words}", "lost, interleaved, skipped or repeated")
    return outcome


def run_sweep(place: Path, *, schedules: int, seed: int = 0) -> Outcome:
    outcome = Outcome("events, killed at every point")
    url = str(place / "store" / "standfast.db")
    with Child(
        "tests.crash.test_event_sweep:sweep", url=url, place=str(place), schedules=schedules, seed=seed
    ) as child:
        try:
            (played,) = child.end(3600)
            outcome.count("schedules", int(played))
        except AssertionError as error:
            outcome.refuse(error, "events")
    return outcome
