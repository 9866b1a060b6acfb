"""Many processes append events and consume them, and are killed."""

from __future__ import annotations

import os
import random
import select
import traceback
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import standfast
from standfast import config, handle
from standfast.errors import VersionConflict
from standfast.record.events import Event
from standfast_prove.faults.children import Nursery
from standfast_prove.outcome import Outcome

WRITERS = 8
READERS = {"ann": "shared", "bob": None, "pair": "shared", "pair of the journal": None}


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


def opened(url: str, data: str, scope: str) -> standfast.Standfast:
    return handle.connect(config.load(url, data_dir=data, scope=scope))


def write(url: str, data: str, scope: str, number: int, rounds: int, acked: str) -> None:
    """In a child: append one event, several in one call, events in two streams in one call, and the same key again."""
    draw = random.Random(number)
    note = os.open(acked, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with opened(url, data, scope) as sf:
        for n in range(rounds):
            size = 1 + n % 3
            items = [("w.said", {"by": number, "n": n, "part": part, "of": size}) for part in range(size)]
            os.write(note, f"tried {number} {n}\n".encode())
            if n % 3 == 0:
                sf.events.append_many("shared", items)
            elif n % 3 == 1:
                with sf.transaction() as tx:  # the event has a low number and is committed late
                    tx.events.append(f"own {number}", "w.said", n)
                    select.select([], [], [], draw.random() * 0.003)
                    tx.events.append_many("shared", items)
            else:
                for _ in range(2):
                    sf.events.append_many("shared", items, key=f"{number}:{n}")
            os.write(note, f"acked {number} {n}\n".encode())


def read(url: str, data: str, scope: str, name: str, stream: str | None) -> None:
    """In a child: read until all writers have ended and every event was read. Events and position are stored in one
    transaction.
    """
    with opened(url, data, scope) as sf, sf._store.watch() as watch:
        while True:
            batch = sf.events.poll(name, stream, type="w", limit=7)
            with suppress(VersionConflict):  # another process with this key was faster
                if batch:
                    with sf.transaction() as tx:
                        seen = [("saw", [event.stream, event.version]) for event in batch.events]
                        tx.events.append_many(f"seen by {name}", seen)
                        tx.events.commit(batch)
                elif batch.moved:
                    sf.events.commit(batch)
                elif has_seen_the_end(sf, name):
                    return
                else:
                    watch.wait(0.2)


def has_seen_the_end(sf: standfast.Standfast, name: str) -> bool:
    """The last event, appended after every writer had ended.

    An empty read is not enough, because an open transaction of any process holds back later events.
    """
    newest = sf.events.list(f"seen by {name}", newest=True, limit=10).events
    last = sf.events.list("shared", type="w.end", newest=True, limit=1).events
    return bool(last) and [last[0].stream, last[0].version] in [event.data for event in newest]


def everything(sf: standfast.Standfast, stream: str) -> list[Event]:
    found: list[Event] = []
    while page := sf.events.read(stream, after=len(found), limit=1000):
        found += page
    return found


def storm(nursery: Nursery, url: str, place: Path, *, seed: int, rounds: int, kills: int, scope: str = "") -> int:
    """Run 8 writers, two of them killed, and 4 consumers, killed repeatedly. Returns the number of events."""
    asked: dict[str, object] = {"url": url, "data": str(place / "data"), "scope": scope}
    acked = place / "acked"
    draw = random.Random(seed)
    victims = draw.sample(range(WRITERS), 2)
    with opened(url, str(place / "data"), scope) as sf:
        readers = [(name, stream) for name, stream in READERS.items() for _ in range(1 + name.startswith("pair"))]

        def start(number: int) -> int:
            name, stream = readers[number]
            return nursery.start("standfast_prove.campaigns.events:read", name=name, stream=stream, **asked)

        alive = {number: start(number) for number in range(len(readers))}
        starters = [asked | {"number": n, "rounds": rounds, "acked": str(acked)} for n in range(WRITERS)]
        writers = nursery.race("standfast_prove.campaigns.events:write", starters)
        with sf._store.watch() as watch:
            for kill in range(kills):
                for _ in range(draw.randrange(20)):
                    watch.wait(0.1)
                number = draw.randrange(len(readers))
                nursery.kill(alive[number])
                alive[number] = start(number)
                if kill < 2:
                    nursery.kill(writers[victims[kill]])
        codes = [nursery.wait(pid, 120) for n, pid in enumerate(writers) if n not in victims]
        assert codes == [0] * (WRITERS - 2)
        sf.events.append("shared", "w.end", {"by": -1, "n": 0, "part": 0, "of": 1})
        assert [nursery.wait(pid, 120) for pid in alive.values()] == [0] * len(readers)
        return check(sf, acked.read_text().splitlines())


def check(sf: standfast.Standfast, acked: list[str]) -> int:
    shared = everything(sf, "shared")
    check_written(shared, acked)
    own = [event for n in range(WRITERS) for event in everything(sf, f"own {n}")]
    for name, stream in READERS.items():
        seen = [tuple(event.data) for event in everything(sf, f"seen by {name}")]
        # The journal's order on a server is that of its transactions, which may have waited for each other.
        in_order = stream is not None or sf.engine.name == "sqlite"
        check_seen(seen if in_order else sorted(seen), shared if stream else shared + own)
    return len(shared) + len(own)


def check_written(shared: list[Event], acked: list[str]) -> None:
    assert [event.version for event in shared] == list(range(1, len(shared) + 1))
    at = 0
    calls: list[tuple[int, int]] = []
    while at < len(shared):  # the parts of one call stand side by side
        first: Any = shared[at].data
        parts = [shared[at + part].data for part in range(first["of"])]
        assert parts == [{**first, "part": part} for part in range(first["of"])]
        calls.append((first["by"], first["n"]))
        at += first["of"]
    assert set(Counter(calls).values()) == {1}
    assert calls.pop() == (-1, 0)
    noted = {
        word: {tuple(map(int, line.split()[1:])) for line in acked if line.startswith(word)} for word in told_words
    }
    assert noted["acked"] <= set(calls) <= noted["tried"]
    for number in range(WRITERS):
        mine = [n for by, n in calls if by == number]
        assert mine == sorted(mine)


told_words = ("tried", "acked")


def check_seen(seen: list[tuple[str, int]], written: list[Event]) -> None:
    by_stream: dict[str, list[int]] = defaultdict(list)
    for stream, version in seen:
        by_stream[stream].append(version)
    for versions in by_stream.values():
        assert versions == list(range(1, len(versions) + 1))  # none skipped, none repeated, in order
    assert len(seen) == len(written)
