"""Killed at every crash point while events are appended, consumed and folded; and again in the recovery.

The oracle is a file outside the store: what was tried and what was told to have succeeded. Whatever was
killed: nothing that was told is missing, a key has appended once, the events of one call stand side by
side, and what a consumer wrote together with its place tells of every event exactly once.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import standfast
from standfast import config, crash, handle
from standfast.prove.crashes.footings import World
from standfast.prove.faults.children import say
from standfast.record.events import Event

# Loaded once here, or each of hundreds of children would load them again.
for name in ("standfast.db.sqlite.registry", "standfast.db.postgres.engine", "standfast.record.events"):
    import_module(name)


def count(state: dict[str, int], event: Event) -> dict[str, int]:
    return {**state, event.type: state.get(event.type, 0) + 1}


class Events(World):
    """A writer, a consumer with work of its own, one that is done by going on, and a fold."""

    def open(self) -> standfast.Standfast:
        return handle.connect(config.load(self.url, data_dir=self.place / "data", scope=self.name))

    def told(self, what: str, act: Callable[[], object]) -> None:
        self.tell(f"tried {what}")
        act()
        self.tell(f"told {what}")

    def live(self) -> None:
        """From the top, whatever happened before."""
        with self.open() as sf:
            self.told("plain", lambda: sf.events.append("orders", "plain"))
            self.told("keyed", lambda: sf.events.append_many("orders", [("one", 1), ("two", 2)], key="k"))
            self.told("both", lambda: self.both(sf))
            self.told("seek", lambda: sf.events.seek("auditor", "orders", to="now"))
            self.drain(sf, "orders")
            self.drain(sf, None)
            for event in sf.events.consume("log", "orders"):
                self.tell(f"handled {event.version}")
            sf.events.fold("orders", count, {}, name="count", snapshot_every=1)
            self.told("forget", lambda: sf.events.forget("auditor", "orders"))
            sf.events.delete_snapshots()
            sf.events.fold("orders", count, {}, name="count", snapshot_every=1)

    def both(self, sf: standfast.Standfast) -> None:
        with sf.transaction() as tx:
            tx.events.append_many("orders", [("left", None), ("right", None)])
            tx.events.append("invoices", "both")

    def drain(self, sf: standfast.Standfast, stream: str | None) -> None:
        if stream is None:
            # A server may need a moment to notice that a killed client's transaction is over.
            last = sf.events.append("invoices", "end").receipt
            while last is not None and not self.pack(sf, None, last.seq):
                pass
        else:
            self.pack(sf, stream, None)

    def pack(self, sf: standfast.Standfast, stream: str | None, last: int | None) -> bool:
        found = False
        while batch := sf.events.poll("packer", stream, limit=2):
            found = found or last in [event.seq for event in batch.events]
            with sf.transaction() as tx:
                seen = [("saw", event.seq) for event in batch.events if event.stream in ("orders", "invoices")]
                if seen:
                    tx.events.append_many(f"packed {stream}", seen)
                tx.events.commit(batch)
        return found

    def check(self, schedule: crash.Schedule) -> None:
        noted = Counter(self.oracle.read_text().splitlines())
        with self.open() as sf:
            orders, invoices = sf.events.read("orders", limit=1000), sf.events.read("invoices", limit=1000)
            assert [event.version for event in orders] == list(range(1, len(orders) + 1)), schedule
            types = [event.type for event in orders]
            seen = Counter(types)
            assert (seen["one"], seen["two"]) == (1, 1)
            assert types[types.index("one") + 1] == "two"
            assert all(types[n + 1] == "right" for n, type in enumerate(types) if type == "left")
            pairs = [event for event in invoices if event.type == "both"]
            assert seen["left"] == seen["right"] == len(pairs)
            for what, there in (("plain", seen["plain"]), ("both", len(pairs))):
                assert noted[f"told {what}"] <= there <= noted[f"tried {what}"]
            for stream, wanted in (("orders", orders), (None, [*orders, *invoices])):
                packed = [event.data for event in sf.events.read(f"packed {stream}", limit=1000)]
                said = [event.seq for event in wanted]
                assert sorted(packed) == sorted(said), schedule
            handled = [event.version for event in orders]
            assert {f"handled {version}" for version in handled} <= set(noted)
            named = sf.events.fold("orders", count, {}, name="count")
            assert named.state == sf.events.fold("orders", count, {}).state == dict(seen)
        self.sound()


def sweep(url: str, place: str, schedules: int, seed: int) -> None:
    """In a child of a long campaign: says how many schedules were played."""
    world = Events(url, Path(place))
    say(crash.sweep(world.live, world.live, world.check, reset=world.reset, max_schedules=schedules, seed=seed))


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Events:
    """One engine each; the parent of a sweep never opens the store."""
    place = tmp_path / "place"
    place.mkdir()
    if request.param == "sqlite":
        return Events(str(place / "store" / "standfast.db"), place)
    return Events(request.getfixturevalue("pg_database"), place)


@pytest.mark.parametrize("world", ["sqlite", "postgres"], indirect=True)
def test_killed_anywhere_nothing_told_is_lost_and_everything_is_consumed_once(world: Events) -> None:
    schedules = 12 if "://" in world.url else 25
    count = crash.sweep(world.live, world.live, world.check, reset=world.reset, max_schedules=schedules)
    assert count == schedules


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
def test_the_sweep_passes_every_point_of_an_event(world: Events) -> None:
    world.reset()
    if (pid := os.fork()) == 0:
        try:
            with crash.record() as names:
                world.live()
            (world.place / "names.json").write_text(json.dumps(names))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    passed = set(json.loads((world.place / "names.json").read_text()))
    assert {name for name in crash.POINTS if name.startswith("event.")} <= passed
