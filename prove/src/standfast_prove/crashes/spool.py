"""Killed at every crash point while records are spooled and imported, and again in the recovery.

The oracle is a file outside the store: each try, and each record that the spool acknowledged.
After every kill each acknowledged record is in the store exactly once, and the store has only records that were tried.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from standfast.crash import Schedule
from standfast.interchange.hooks import payloads, spool
from standfast_prove.crashes.world import World


class Spooling(World):
    """Spools two records and imports them, then one more."""

    @property
    def there(self) -> Path:
        return self.now / "spool"

    def make(self) -> None:
        super().make()
        self.data.mkdir(mode=0o700, exist_ok=True)
        assert spool.key(str(self.data))

    def put(self, n: int) -> None:
        payload: dict[str, Any] = {"session_id": self.name, "cwd": "/"}
        if n == 1:
            payload |= {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "t1"}
            payload["tool_input"] = {"command": "ls"}
        else:
            payload |= {"hook_event_name": "UserPromptSubmit", "prompt": f"{self.name}-{n}"}
        given = payloads.heard("codex", payload, n)
        assert given is not None
        self.tell(f"tried {n}")
        assert spool.append([str(self.there)], str(self.data), f"codex:{self.name}", "", given)
        self.tell(f"acked {n}")

    def live(self) -> None:
        for n in range(2):
            self.put(n)
        self.home()
        self.put(2)
        self.home()

    def recover(self) -> None:
        self.home()

    def home(self) -> None:
        with self.open() as sf:
            spool.drain(sf._store, [str(self.there)], str(self.data))

    def check(self, schedule: Schedule) -> None:
        lines = self.noted()
        self.home()
        with self.open() as sf:
            found = Counter(
                row["occurred_us"]
                for row in sf.rows(
                    "SELECT e.occurred_us FROM event e JOIN session s ON s.id = e.session_id"
                    " WHERE s.key = :key AND e.type IN ('prompt.submitted', 'tool.called')",
                    {"key": f"codex:{self.name}"},
                )
            )
        for n in range(3):
            assert found[n] <= 1, f"{schedule}: {n} is there {found[n]} times"
            assert found[n] == 1 or not lines[f"acked {n}"], f"{schedule}: {n} was taken and is lost"
            assert found[n] == 0 or lines[f"tried {n}"]
        assert not self.there.exists() or not any(self.there.iterdir())
        self.sound()
