"""Killed at every crash point while a file is applied and an agent adds messages. The whole file is applied, or nothing
of it.

The oracle is a file outside the store. It lists each acknowledged commit with its references.
"""

from __future__ import annotations

import json
from typing import Any

import standfast
from standfast import config, handle
from standfast.crash import Schedule
from standfast_prove.crashes.world import World

FLEET: dict[str, Any] = {
    "tasks": [
        {"name": "keys", "title": "rotate the keys", "priority": 1, "labels": ["ops", "keys"], "cool_down": "1d"},
        {"title": "publish 1.2", "needs": ["keys"], "parent": "release", "due": "2026-12-01T09:00:00Z"},
        {"name": "release", "title": "release", "body": "all of it"},
    ],
    "loops": [{"name": "nightly", "command": ["make", "test"], "cron": "0 3 * * *", "zone": "UTC", "timeout": "30m"}],
    "state": [{"key": "limits", "value": {"cpu": 2}, "json_schema": {"type": "object"}, "verify": "true", "for": "9d"}],
    "gates": [{"pattern": "git push*", "why": "main"}, {"pattern": "rm *", "need": "effect", "global": True}],
}


def with_(document: dict[str, Any], section: str, number: int, **fields: Any) -> dict[str, Any]:
    """The same document with one entry changed."""
    copy: dict[str, Any] = json.loads(json.dumps(document))
    copy[section][number] |= fields
    return copy


SECOND = with_(with_(FLEET, "tasks", 0, priority=0), "state", 0, value={"cpu": 3})


class Fleet(World):
    """A program that applies a file, then a changed one, and notes the result."""

    def open(self) -> standfast.Standfast:
        chosen = config.load(self.url, data_dir=self.data, scope=self.name, actor="ann")
        return handle.connect(chosen)

    def live(self) -> None:
        """The program. Every process runs it from the top."""
        with self.open() as sf:
            for key, spec in (("one", FLEET), ("two", SECOND)):
                refs = sf.apply(spec, key=key, mode="commit").refs
                self.tell(f"{key} {json.dumps(refs, sort_keys=True)}")
            sf.agents.set(status="active", config={"model": "m"})
            self.tell("said")

    def check(self, schedule: Schedule) -> None:
        acked = self.lines()
        assert len({line for line in acked if line.startswith("one ")}) == 1, "a key answered with other references"
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
            assert [gate.pattern for gate in sf.gates.list() if gate.scope == self.name] == ["git push*"]
            found = sf.rows("SELECT key, refs FROM application WHERE scope = :s ORDER BY key", {"s": self.name})
            assert [row["key"] for row in found if row["refs"] != "[]"] == ["one", "two"]
            events = sf.rows("SELECT type FROM event WHERE scope = :s", {"s": self.name})
            types = [event["type"] for event in events]
            assert (types.count("application.committed"), types.count("task.opened")) == (2, 3)
            agent = sf.agents.get("ann")
            assert (agent.status, agent.config) == ("active", {"model": "m"})
            assert types.count("agent.set") >= acked.count("said")
            patterns = {
                one["pattern"]
                for gates in json.loads((self.data / "gates.json").read_text())["stores"].values()
                for one in gates
            }
            assert patterns == {"git push*", "rm *"}
        self.sound()
