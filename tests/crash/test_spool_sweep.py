"""Killed at every crash point while records are spooled and brought home, and again in the recovery.

The oracle is a file outside the store: what was tried, and what the spool was told to have taken.
Whatever was killed: what was taken is in the store exactly once, and nothing that was not tried.
"""

from __future__ import annotations

import shutil
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from standfast import crash
from standfast.interchange.hooks import spool
from standfast.prove.crashes.footings import World
from tests.hooks import bash, heard, payload

for name in (
    "standfast.db.sqlite.registry",
    "standfast.db.postgres.engine",
    "standfast.interchange.hooks.keeping",
    "standfast.record.sessions",
):
    import_module(name)


class Spooling(World):
    """Two records into the spool, home; one more, home."""

    @property
    def there(self) -> Path:
        return self.place / f"spool-{self.name}"

    def reset(self) -> None:
        shutil.rmtree(self.there, ignore_errors=True)
        super().reset()

    def put(self, n: int) -> None:
        prompt = payload("UserPromptSubmit", session=self.name, prompt=f"{self.name}-{n}")
        given = heard(prompt if n != 1 else bash("PreToolUse", "ls", session=self.name), agent="codex", at_us=n)
        self.tell(f"tried {n}")
        assert spool.append([str(self.there)], str(self.place / "data"), f"codex:{self.name}", "", given)
        self.tell(f"told {n}")

    def live(self) -> None:
        for n in range(2):
            self.put(n)
        self.home()
        self.put(2)
        self.home()

    def home(self) -> None:
        with self.open() as sf:
            spool.drain(sf._store, [str(self.there)], str(self.place / "data"))

    def check(self, schedule: crash.Schedule) -> None:
        lines = Counter(self.oracle.read_text().splitlines()) if self.oracle.exists() else Counter()
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
            assert found[n] == 1 or not lines[f"told {n}"], f"{schedule}: {n} was taken and is lost"
            assert found[n] == 0 or lines[f"tried {n}"]
        assert not self.there.exists() or not any(self.there.iterdir())
        self.sound()


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Spooling:
    place = tmp_path / "place"
    place.mkdir()
    (place / "data").mkdir(mode=0o700)
    assert spool.key(str(place / "data"))
    if request.param == "sqlite":
        return Spooling(str(place / "store" / "standfast.db"), place)
    return Spooling(request.getfixturevalue("pg_database"), place)


@pytest.mark.parametrize("world", ["sqlite", "postgres"], indirect=True)
def test_killed_anywhere_what_the_spool_took_is_in_the_store_once(world: Spooling) -> None:
    """The recovery begins from the top: what was told twice is the same record, and there once."""
    count = crash.sweep(world.live, world.home, world.check, reset=world.reset, max_schedules=30)
    assert count == 30
