"""Tails beside writers in many processes: every event once, whoever commits late."""

from __future__ import annotations

import random
from pathlib import Path

import standfast
from standfast.prove.faults.children import Nursery
from standfast.prove.outcome import Outcome
from tests.test_journal import follow_to_the_end


def run(place: Path, *, url: str | None = None, seed: int = 0, writers: int = 4, events: int = 150) -> Outcome:
    outcome = Outcome("journal tail")
    url = url or str(place / "standfast.db")
    prefix = f"{random.Random(seed).getrandbits(40):x}"
    with standfast.open(url, data_dir=place / "data") as sf, Nursery(words=place / "words") as nursery:
        start = sf.journal.now()
        starters: list[dict[str, object]] = [
            {"url": url, "place": str(place), "name": f"{prefix}{n}", "events": events} for n in range(writers)
        ]
        pids = nursery.race("tests.test_journal:write_events", starters)
        seen = follow_to_the_end(sf, writers * events, seed, start)
        codes = [nursery.wait(pid) for pid in pids]
    outcome.count("events followed", len(seen))
    outcome.refuse([code for code in codes if code != 0], "writers failed: " + (place / "words").read_text()[-1500:])
    expected = sorted(f"{prefix}{n}-{i:03}" for n in range(writers) for i in range(events))
    outcome.refuse(sorted(seen) != expected, "events were skipped or came twice")
    return outcome
