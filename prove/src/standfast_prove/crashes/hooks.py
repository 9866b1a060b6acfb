"""Hooks and gates: each record that a hook acknowledged is there once, and the cached gates match the store.

An agent does not run a killed hook again. So each record is tried once, and is then there or not.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from standfast.crash import Schedule
from standfast.interchange.hooks import payloads
from standfast.interchange.hooks.record import Hooks as Resource
from standfast_prove.crashes.world import World

EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")


class Hooks(World):
    """An agent works under gates that a person adds and removes."""

    def live(self) -> None:
        with self.open() as sf:
            sf.gates.add("git push*", why="main")
            sf.gates.add("rm *", need="effect")
            tried = {line.split()[1] for line in self.lines() if line.startswith("tried ")}
            for n, event in enumerate(EVENTS, 1):
                if str(n) not in tried:
                    heard = payloads.heard("codex", self.payload(event), n)
                    assert heard is not None
                    self.acked(str(n), lambda heard=heard: Resource(sf._store).keep(heard))  # type: ignore[misc]
            if any(gate.pattern == "rm *" for gate in sf.gates.list()):
                sf.gates.remove("rm *")
            sf.gates.mirror()

    def payload(self, event: str) -> dict[str, Any]:
        given: dict[str, Any] = {"session_id": self.name, "cwd": "/", "hook_event_name": event}
        if event.endswith("ToolUse"):
            given |= {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "ls"}, "tool_response": "a"}
        return given | ({"prompt": "hello"} if event == "UserPromptSubmit" else {})

    def check(self, schedule: Schedule) -> None:
        noted = self.noted()
        with self.open() as sf:
            found = Counter(
                int(row["occurred_us"])
                for row in sf.rows(
                    "SELECT e.occurred_us FROM event e JOIN session s ON s.id = e.session_id"
                    " WHERE s.key = :key AND e.source = 'seen' AND e.occurred_us < 100",
                    {"key": f"codex:{self.name}"},
                )
            )
            for n in range(1, len(EVENTS) + 1):
                assert found[n] <= 1, f"{schedule}: {n} is there {found[n]} times"
                assert found[n] == 1 or not noted[f"acked {n}"], f"{schedule}: {n} was kept and is lost"
            standing = sorted(gate.pattern for gate in sf.gates.list() if gate.scope == self.name)
            assert standing == ["git push*"]
            copies = json.loads((self.data / "gates.json").read_text())["stores"].values()
            copied = [one["pattern"] for gates in copies for one in gates if one["scope"] == self.name]
            assert copied == standing, "the copy is behind"
        self.sound()
