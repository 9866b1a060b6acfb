"""Followers of the journal read every event once, even if one of many writing processes commits late."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import standfast
from standfast.core import journal
from standfast.db.contract import Tx
from standfast_prove.faults.children import Nursery
from standfast_prove.outcome import Outcome


def run(place: Path, *, url: str | None = None, seed: int = 0, writers: int = 4, events: int = 150) -> Outcome:
    outcome = Outcome("journal tail")
    url = url or str(place / "standfast.db")
    prefix = f"{random.Random(seed).getrandbits(40):x}"
    with standfast.open(url, data_dir=place / "data") as sf, Nursery(words=place / "words") as nursery:
        start = sf.journal.now()
        starters: list[dict[str, object]] = [
            {"url": url, "place": str(place), "name": f"{prefix}{n}", "events": events} for n in range(writers)
        ]
        pids = nursery.race("standfast_prove.campaigns.followers:write_events", starters)
        codes: dict[int, int] = {}

        def over() -> bool:
            for pid in pids:
                if pid not in codes and (code := nursery.wait(pid, 0)) is not None:
                    codes[pid] = code
            return len(codes) == len(pids)

        seen = follow_to_the_end(sf, writers * events, seed, start, over=over)
        codes |= {pid: nursery.wait(pid) or 0 for pid in pids if pid not in codes}
    outcome.count("events", len(seen))
    outcome.refuse(
        [code for code in codes.values() if code != 0], "writers failed: " + (place / "words").read_text()[-1500:]
    )
    expected = sorted(f"{prefix}{n}-{i:03}" for n in range(writers) for i in range(events))
    outcome.refuse(sorted(seen) != expected, "events were skipped or came twice")
    return outcome


def follow_to_the_end(
    sf: standfast.Standfast,
    expected: int,
    seed: int = 0,
    cursor: str | None = None,
    *,
    over: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Tail with pages of odd sizes until the expected number of events has arrived, or no process writes any more."""
    chance, seen = random.Random(seed), []
    with sf._store.watch() as watch:
        for _ in range(10_000):
            page = sf.journal.tail(cursor, limit=chance.choice([1, 3, 50]))
            cursor = page.cursor
            seen += [event.subject for event in page.events if event.type == "test.happened"]
            if len(seen) >= expected and not page.events:
                return seen
            if not page.events:
                ended = over()  # checked before the last read: an event that is missing after that read is lost
                watch.wait(0.05)
                if ended and not sf.journal.tail(cursor, limit=1).events:
                    return seen
    raise AssertionError(f"only {len(seen)} of {expected} events came")


def write_events(url: str, place: str, name: str, events: int) -> None:
    """In a child: append events alone, and in transactions that wait between the append and the commit."""
    chance = random.Random(name)
    with standfast.open(url, data_dir=os.path.join(place, "data")) as sf:
        written = 0
        while written < events:
            if chance.random() < 0.3:
                with sf._store.transaction() as tx:
                    for _ in range(min(chance.randint(1, 4), events - written)):
                        journal.append(tx, "test.happened", f"{name}-{written:03}")
                        tx.maybe(journal.SQL.by_seq, seq=0)  # a round trip to the server, so the append has run
                        written += 1
                    time.sleep(chance.uniform(0, 0.01))
            else:
                sf._store.write(partial(_happened, subject=f"{name}-{written:03}"))
                written += 1


def _happened(tx: Tx, subject: str) -> None:
    journal.append(tx, "test.happened", subject)
