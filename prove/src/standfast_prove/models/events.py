"""Events against a model of a few lines: lists of pairs, and a number for each reader."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from standfast import when
from standfast.clock import ManualClock
from standfast.errors import KeyConflict, VersionConflict
from standfast.record.events import Event
from standfast_prove.models.machine import Machine
from standfast_prove.raising import raising

STEPS = 30

STREAMS = st.sampled_from(["a", "b"])
NAMES = st.sampled_from(["ann", "bob"])
KEYS = st.sampled_from([None, None, "k1", "k2"])
ITEMS = st.lists(st.tuples(st.sampled_from(["x", "y", "x.z"]), st.integers(0, 2)), min_size=1, max_size=3)


def joined(state: list[Any], event: Event) -> list[Any]:
    return [*state, [event.type, event.data]]


class Program(Machine):
    @initialize()
    def begin(self) -> None:
        self.clock = ManualClock()
        self.sf = self.opened(clock=self.clock)
        self.start_us = self.clock.now_us()
        self.streams: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.times: dict[str, list[int]] = defaultdict(list)
        self.keys: dict[tuple[str, str], tuple[int, list[tuple[str, int]]]] = {}
        self.places: dict[tuple[str, str], int] = {}
        self.in_hand: list[Any] = []
        for stream in ("a", "b"):  # a run without any append would test nothing
            for n in range(3):
                self.appends(stream, [("x", n), ("y", n)], f"k{n}", None)
            self.reads("ann", stream, 2)
            self.commits(0, False)
            self.reads("ann", stream, 2)
            self.reads("ann", stream, 3)

    def teardown(self) -> None:
        if hasattr(self, "sf"):
            self.sf.close()

    @rule(stream=STREAMS, items=ITEMS, key=KEYS, off=st.sampled_from([None, 0, 0, 1, -1]))
    def appends(self, stream: str, items: list[tuple[str, int]], key: str | None, off: int | None) -> None:
        self.clock.advance(1)
        there = self.streams[stream]
        expected = None if off is None else max(0, len(there) + off)
        used = self.keys.get((stream, key or ""))

        def ask() -> Any:
            return self.sf.events.append_many(stream, items, key=key, expected_version=expected)

        if used is not None and used[1] != items:
            with raising(KeyConflict):
                ask()
        elif used is not None:
            assert [one.version for one in ask()] == list(range(used[0], used[0] + len(items)))
        elif expected is not None and expected != len(there):
            with raising(VersionConflict, match=f"at version {len(there)},"):
                ask()
        else:
            assert [one.version for one in ask()] == list(range(len(there) + 1, len(there) + 1 + len(items)))
            if key is not None:
                self.keys[stream, key] = (len(there) + 1, items)
            there += items
            self.times[stream] += [self.clock.now_us()] * len(items)

    @rule(which=st.integers(0, 9), same=st.booleans())
    def uses_a_key_again(self, which: int, same: bool) -> None:
        if self.keys:
            (stream, key), (_, items) = sorted(self.keys.items())[which % len(self.keys)]
            self.appends(stream, items if same else [*items, ("y", 1)], key, None)

    @rule(name=NAMES, stream=STREAMS, limit=st.integers(1, 4))
    def reads(self, name: str, stream: str, limit: int) -> None:
        batch = self.sf.events.poll(name, stream, limit=limit)
        at = self.places.get((name, stream), 0)
        assert [(event.type, event.data) for event in batch.events] == self.streams[stream][at : at + limit]
        self.in_hand += [batch] if batch else []

    @rule(which=st.integers(0, 3), crashes=st.sampled_from([False, False, True]))
    def commits(self, which: int, crashes: bool) -> None:
        """One of the last batches that any consumer read. It may have been committed since."""
        if not self.in_hand:
            return
        batch = self.in_hand[-1 - which % len(self.in_hand)]
        at = self.places.get((batch.consumer, batch.stream))
        if batch.before != ("" if at is None else f"v:{at}"):
            with raising(VersionConflict):
                self.sf.events.commit(batch)
            return
        with suppress(ZeroDivisionError), self.sf.transaction() as tx:
            tx.events.commit(batch)
            if crashes:
                raise ZeroDivisionError
        if not crashes:
            self.places[batch.consumer, batch.stream] = batch.events[-1].version

    @rule(name=NAMES, stream=STREAMS, to=st.integers(0, 9))
    def seeks(self, name: str, stream: str, to: int) -> None:
        to = min(to, len(self.streams[stream]))
        self.sf.events.seek(name, stream, to=to)
        self.places[name, stream] = to

    @rule(stream=STREAMS, at=st.integers(0, 12), every=st.integers(1, 5))
    def folds(self, stream: str, at: int, every: int) -> None:
        for moment in (at, max(0, at - 1), at + 1):
            folded = self.sf.events.fold(stream, joined, [], name="joined", at=moment, snapshot_every=every)
            expected = [list(pair) for pair in self.streams[stream][:moment]]
            assert folded.state == expected == self.sf.events.fold(stream, joined, [], at=moment).state
            assert folded.snapshot + folded.read == folded.version == len(expected)

    @rule(stream=STREAMS, seconds=st.integers(0, 30))
    def travels(self, stream: str, seconds: int) -> None:
        us = self.start_us + seconds * 1_000_000
        folded = self.sf.events.fold(stream, joined, [], name="joined", at=when.utc(us))
        assert folded.version == sum(time_us <= us for time_us in self.times[stream])

    @rule()
    def loses_every_snapshot(self) -> None:
        self.sf.events.delete_snapshots()

    @rule(stream=STREAMS, type=st.sampled_from(["x", "y", None]))
    def lists(self, stream: str, type: str | None) -> None:
        found = self.sf.events.list(stream, type=type, limit=1000).events
        wanted = [pair for pair in self.streams[stream] if type is None or pair[0].split(".")[0] == type]
        assert [(event.type, event.data) for event in found] == wanted

    @invariant()
    def both_agree(self) -> None:
        if hasattr(self, "sf"):
            acked = {stream.name: stream.version for stream in self.sf.events.streams()}
            assert acked == {name: len(events) for name, events in self.streams.items() if events}
