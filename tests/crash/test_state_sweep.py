"""Killed at every crash point while values are set, swapped, updated, verified, deleted and swept.

The oracle is a file outside the store: what was tried and what was told to have succeeded. Whatever was
killed: nothing that was told is missing, nothing happened that was not tried, a counter lost nobody,
and the row and the journal tell one story.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, crash, handle
from standfast.cli import state_verify
from standfast.clock import SYSTEM
from standfast.errors import NotFound
from standfast.prove.crashes.footings import World

# Loaded once here, or each of hundreds of children would load them again.
for name in (
    "standfast.db.sqlite.registry",
    "standfast.db.postgres.engine",
    "standfast.record.state",
    "standfast.record.redaction",
    "standfast.cli.approve",
):
    import_module(name)


class Values(World):
    """A counter, a value with a verdict, one that comes and goes, one whose time is over at once."""

    def open(self) -> standfast.Standfast:
        return handle.connect(config.load(self.url, data_dir=self.place / "data", scope=self.name), clock=SYSTEM)

    def told(self, what: str, act: Callable[[], Any]) -> Any:
        self.tell(f"tried {what}")
        result = act()
        self.tell(f"told {what}")
        return result

    def live(self) -> None:
        """From the top, whatever happened before."""
        with self.open() as sf:
            self.told("count", lambda: sf.state.update("n", lambda n: n + 1, default=0))
            branch = self.told("branch", lambda: sf.state.set("branch", "main", verify="true"))
            self.told("verdict", lambda: state_verify.run(sf, [branch], 60.0))
            self.told("come", lambda: sf.state.set("guest", 1))
            self.told("go", lambda: sf.state.delete("guest"))
            sf.state.set("short", "x", for_us=1)
            while not sf.state.expire():
                pass  # a microsecond, and there it is

    def check(self, schedule: crash.Schedule) -> None:
        noted = Counter(self.oracle.read_text().splitlines())
        with self.open() as sf:
            n = sf.state.get("n")
            assert noted["told count"] <= n.value <= noted["tried count"]
            assert n.version == n.value
            branch = sf.state.get("branch")
            assert noted["told branch"] <= branch.version <= noted["tried branch"]
            assert branch.verdict == "fresh"
            with pytest.raises(NotFound):
                sf.state.get("guest")
            (row,) = sf.rows("SELECT value, expires_us FROM state WHERE scope = :s AND key = 'short'", {"s": self.name})
            assert (row["value"], row["expires_us"]) == ("null", 0)
            for key in ("n", "branch", "guest", "short"):
                self.check_story(sf, key)
        self.sound()

    def check_story(self, sf: standfast.Standfast, key: str) -> None:
        """Every version is in the journal, once and in order."""
        told = sf.rows(
            "SELECT data FROM event WHERE scope = :s AND subject = :k AND type IN ('state.set', 'state.deleted')"
            " ORDER BY seq",
            {"s": self.name, "k": f"state::{key}"},
        )
        versions = [json.loads(event["data"])["version"] for event in told]
        (row,) = sf.rows("SELECT version FROM state WHERE scope = :s AND key = :k", {"s": self.name, "k": key})
        assert versions == list(range(1, row["version"] + 1))


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Values:
    """One engine each; the parent of a sweep never opens the store."""
    place = tmp_path / "place"
    place.mkdir()
    if request.param == "sqlite":
        return Values(str(place / "store" / "standfast.db"), place)
    return Values(request.getfixturevalue("pg_database"), place)


@pytest.mark.parametrize("world", ["sqlite", "postgres"], indirect=True)
def test_killed_anywhere_no_count_is_lost_and_every_version_is_told(world: Values) -> None:
    schedules = 8 if world.url.startswith("postgres") else 24
    count = crash.sweep(world.live, world.live, world.check, reset=world.reset, max_schedules=schedules)
    assert count == schedules


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
def test_the_sweep_passes_every_point_of_a_value(world: Values) -> None:
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
    wanted = {name for name in crash.POINTS if name.startswith("state.")}
    assert wanted - passed == {"state.after_set"}  # a session's own: tests/crash/test_session_sweep.py
