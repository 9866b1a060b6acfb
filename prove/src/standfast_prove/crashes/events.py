"""Killed at every crash point while events are appended, consumed and folded; and again in the recovery.

The oracle is a file outside the store: every try and every acknowledgement. After every kill no acknowledged event is
missing, each key has appended once, and the events of one call are adjacent. A consumer writes rows in the transaction
of its position: these rows have every event exactly once.
"""

from __future__ import annotations

from collections import Counter

import standfast
from standfast.crash import Schedule
from standfast.record.events import Event
from standfast_prove.crashes.world import World


def count(state: dict[str, int], event: Event) -> dict[str, int]:
    return {**state, event.type: state.get(event.type, 0) + 1}


class Events(World):
    """A writer, a consumer that commits in a transaction, one that commits with its next read, and a fold."""

    def live(self) -> None:
        """The program. Every process runs it from the top."""
        with self.open() as sf:
            self.acked("plain", lambda: sf.events.append("orders", "plain"))
            self.acked("keyed", lambda: sf.events.append_many("orders", [("one", 1), ("two", 2)], key="k"))
            self.acked("both", lambda: self.both(sf))
            self.acked("seek", lambda: sf.events.seek("auditor", "orders", to="now"))
            self.drain(sf, "orders")
            self.drain(sf, None)
            for event in sf.events.consume("log", "orders"):
                self.tell(f"handled {event.version}")
            sf.events.fold("orders", count, {}, name="count", snapshot_every=1)
            self.acked("forget", lambda: sf.events.forget("auditor", "orders"))
            sf.events.delete_snapshots()
            sf.events.fold("orders", count, {}, name="count", snapshot_every=1)

    def both(self, sf: standfast.Standfast) -> None:
        with sf.transaction() as tx:
            tx.events.append_many("orders", [("left", None), ("right", None)])
            tx.events.append("invoices", "both")

    def drain(self, sf: standfast.Standfast, stream: str | None) -> None:
        if stream is None:
            # A server needs a moment to notice that the transaction of a killed client has ended.
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

    def check(self, schedule: Schedule) -> None:
        noted = self.noted()
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
                assert noted[f"acked {what}"] <= there <= noted[f"tried {what}"]
            for stream, wanted in (("orders", orders), (None, [*orders, *invoices])):
                packed = [event.data for event in sf.events.read(f"packed {stream}", limit=1000)]
                said = [event.seq for event in wanted]
                assert sorted(packed) == sorted(said), schedule
            handled = [event.version for event in orders]
            assert {f"handled {version}" for version in handled} <= set(noted)
            named = sf.events.fold("orders", count, {}, name="count")
            assert named.state == sf.events.fold("orders", count, {}).state == dict(seen)
        self.sound()
