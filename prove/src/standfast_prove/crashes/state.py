"""Killed at every crash point while values are set, swapped, updated, verified, deleted and swept.

The oracle is a file outside the store: every try and every acknowledgement. After every kill no acknowledged write is
missing, every change was tried, the counter counted every call, and the row and the journal agree.
"""

from __future__ import annotations

import json

import standfast
from standfast.crash import Schedule
from standfast.errors import NotFound
from standfast.record.state import Entry
from standfast_prove.crashes.world import World
from standfast_prove.raising import raising


class Values(World):
    """Changes four values: a counter, a value with a verification, one that is set and deleted, and one that expires
    after 1 µs.
    """

    def live(self) -> None:
        """The program. Every process runs it from the top."""
        with self.open() as sf:
            self.acked("count", lambda: sf.state.update("n", lambda n: n + 1, default=0))
            branch = self.acked("branch", lambda: sf.state.set("branch", "main", verify="true"))
            self.acked("verdict", lambda: self.verify(sf, branch))
            self.acked("come", lambda: sf.state.set("guest", 1))
            self.acked("go", lambda: sf.state.delete("guest"))
            sf.state.set("short", "x", for_="1us")
            while not sf.state.expire():
                pass  # it expires after 1 µs

    def verify(self, sf: standfast.Standfast, branch: Entry) -> None:
        """Stores the answer of the command, as `standfast state verify` does."""
        sf.state.verified("branch", verdict="fresh", version=branch.version)

    def check(self, schedule: Schedule) -> None:
        noted = self.noted()
        with self.open() as sf:
            n = sf.state.get("n")
            assert noted["acked count"] <= n.value <= noted["tried count"]
            assert n.version == n.value
            branch = sf.state.get("branch")
            assert noted["acked branch"] <= branch.version <= noted["tried branch"]
            assert branch.verdict == "fresh"
            with raising(NotFound):
                sf.state.get("guest")
            (row,) = sf.rows("SELECT value, expires_us FROM state WHERE scope = :s AND key = 'short'", {"s": self.name})
            assert (row["value"], row["expires_us"]) == ("null", 0)
            for key in ("n", "branch", "guest", "short"):
                self.check_story(sf, key)
        self.sound()

    def check_story(self, sf: standfast.Standfast, key: str) -> None:
        """Every version is in the journal, once and in order."""
        acked = sf.rows(
            "SELECT data FROM event WHERE scope = :s AND subject = :k AND type IN ('state.set', 'state.deleted')"
            " ORDER BY seq",
            {"s": self.name, "k": f"state::{key}"},
        )
        versions = [json.loads(event["data"])["version"] for event in acked]
        (row,) = sf.rows("SELECT version FROM state WHERE scope = :s AND key = :k", {"s": self.name, "k": key})
        assert versions == list(range(1, row["version"] + 1))
