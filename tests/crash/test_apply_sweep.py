"""Killed at every crash point while a file is applied and an agent speaks: all of it is there, or nothing.

The oracle is a file outside the store: what was told to have been committed, with its references.
"""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path

import pytest

import standfast
from standfast import config, crash, handle
from standfast.prove.crashes.footings import World
from tests.test_apply import FLEET, with_

# Loaded once here, or each of hundreds of children would load them again.
for name in (
    "standfast.db.sqlite.registry",
    "standfast.db.postgres.engine",
    "standfast.record.agents",
    "standfast.record.apply",
    "standfast.record.loops",
    "standfast.record.tasks",
    "standfast.record.state",
    "standfast.ledger.gates",
):
    import_module(name)

SECOND = with_(with_(FLEET, "tasks", 0, priority=0), "state", 0, value={"cpu": 3})


class Fleet(World):
    """A program that applies a file, then a changed one, and says what it is."""

    def open(self) -> standfast.Standfast:
        chosen = config.load(self.url, data_dir=self.place / "data", scope=self.name, actor="ann")
        return handle.connect(chosen)

    def reset(self) -> None:
        super().reset()
        (self.place / "data" / "gates.json").unlink(missing_ok=True)

    def live(self) -> None:
        """From the top, whatever happened before."""
        with self.open() as sf:
            for key, spec in (("one", FLEET), ("two", SECOND)):
                refs = sf.apply(spec, key=key, mode="commit").refs
                self.tell(f"{key} {json.dumps(refs, sort_keys=True)}")
            sf.agents.set(status="active", config={"model": "m"})
            self.tell("said")

    def check(self, schedule: crash.Schedule) -> None:
        told = self.oracle.read_text().splitlines()
        assert len({line for line in told if line.startswith("one ")}) == 1, "a key answered with other references"
        with self.open() as sf:
            tasks = {task.title: task for task in sf.tasks.list(state="any")}
            assert {title: task.priority for title, task in tasks.items()} == {
                "rotate the keys": 0,
                "publish 1.2": 2,
                "release": 2,
            }
            assert {task.occurrences for task in tasks.values()} == {1}
            assert [loop.name for loop in sf.loops.list()] == ["nightly"]
            limits = sf.state.get("limits")
            assert (limits.value, limits.version) == ({"cpu": 3}, 2)
            assert sorted(gate.pattern for gate in sf.gates.list() if gate.scope == self.name) == ["git push*"]
            found = sf.rows("SELECT key, refs FROM application WHERE scope = :s ORDER BY key", {"s": self.name})
            assert [row["key"] for row in found if row["refs"] != "[]"] == ["one", "two"]
            events = sf.rows("SELECT type FROM event WHERE scope = :s", {"s": self.name})
            types = [event["type"] for event in events]
            assert (types.count("application.committed"), types.count("task.opened")) == (2, 3)
            agent = sf.agents.get("ann")
            assert (agent.status, agent.config) == ("active", {"model": "m"})
            assert types.count("agent.set") >= told.count("said")
            patterns = {
                one["pattern"]
                for gates in json.loads((self.place / "data" / "gates.json").read_text())["stores"].values()
                for one in gates
            }
            assert patterns == {"git push*", "rm *"}
        self.sound()


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    """One engine each; the parent of a sweep never opens the store."""
    place = tmp_path / "place"
    place.mkdir()
    if request.param == "sqlite":
        return Fleet(str(place / "store" / "standfast.db"), place)
    return Fleet(request.getfixturevalue("pg_database"), place)


@pytest.mark.parametrize("world", ["sqlite", "postgres"], indirect=True)
def test_killed_anywhere_a_file_is_applied_as_a_whole_and_once(world: Fleet) -> None:
    schedules = 6 if world.url.startswith("postgres") else 18
    count = crash.sweep(world.live, world.live, world.check, reset=world.reset, max_schedules=schedules)
    assert count == schedules


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
def test_the_sweep_passes_the_points_of_apply_and_of_agents(world: Fleet) -> None:
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
    assert {name for name in crash.POINTS if name.startswith(("apply.", "agent."))} <= passed
