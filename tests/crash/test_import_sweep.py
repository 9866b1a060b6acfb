"""Killed at every crash point while transcripts are imported, and again in the recovery: the end is the same.

The oracle is an import that nobody disturbed, into a store of its own.
"""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, crash, handle
from standfast.interchange.transcripts import reading
from standfast.prove.crashes.footings import World
from standfast.prove.faults.children import say
from tests.transcripts import append, claude, night, user, write

# Loaded once here, or each of hundreds of children would load them again.
for name in ("standfast.db.sqlite.registry", "standfast.db.postgres.engine", "standfast.interchange.imports"):
    import_module(name)
for name in ("claude_code", "codex", "gemini_cli"):
    import_module(f"standfast.interchange.transcripts.{name}")


class Imports(World):
    """Two sessions, one a fork of the other, with a compaction; a chat that grows; and one more turn meanwhile."""

    @property
    def folder(self) -> Path:
        return self.place / "transcripts" / self.name

    def reset(self) -> None:
        super().reset()
        session = f"{self.name}-main"
        turns = [record | {"uuid": f"{self.name}-{n}"} for n, record in enumerate(night(session, count=3))]
        for n, record in enumerate(turns):
            own = json.dumps(record).replace("toolu_", f"{self.name}_").replace('"msg_', f'"{self.name}_msg_')
            turns[n] = json.loads(own)
        folded = [
            claude("system", f"{self.name}-c1", subtype="compact_boundary", content="compacted", sessionId=session),
            user(f"{self.name}-c2", "in short", isCompactSummary=True, sessionId=session),
        ]
        fork = [record | {"sessionId": f"{self.name}-fork"} for record in turns]
        write(self.folder / "claude" / "a.jsonl", *turns, *folded)
        mine = user(f"{self.name}-own", "another way", sessionId=f"{self.name}-fork")
        write(self.folder / "claude" / "b.jsonl", *fork, mine)
        header = {"sessionId": f"{self.name}-gem", "startTime": "2026-11-10T03:00:00Z"}
        said = [{"id": f"g{n % 3}", "type": "gemini", "content": f"word {n}"} for n in range(7)]
        write(self.folder / "gemini" / "session-1.jsonl", header, *said, {"$rewindTo": "g1"})

    def open(self) -> standfast.Standfast:
        return handle.connect(config.load(self.url, data_dir=self.place / "data", scope=self.name))

    def live(self) -> None:
        reading.PIECE_LINES = 5  # a handful of batches
        with self.open() as sf:
            self.all(sf)

    def all(self, sf: standfast.Standfast) -> None:
        sf.imports.run("claude-code", self.folder / "claude")
        sf.imports.run("gemini-cli", self.folder / "gemini")
        late = user(f"{self.name}-late", "one more", sessionId=f"{self.name}-main")
        grown = self.folder / "claude" / "a.jsonl"
        if f"{self.name}-late" not in grown.read_text():
            append(grown, late)
        sf.imports.run("claude-code", self.folder / "claude")

    def left(self, sf: standfast.Standfast) -> dict[str, list[dict[str, Any]]]:
        like: dict[str, object] = {"name": f"%{self.name}-%", "folder": f"{self.folder}%"}
        asked = {
            "message": "SELECT m.native, m.position, m.role, m.content, n.name AS node, s.key,"
            " m.retracted_us IS NULL AS stands FROM message m JOIN node n ON n.id = m.node_id"
            " JOIN session s ON s.id = m.session_id WHERE s.key LIKE :name ORDER BY m.native",
            "tool_call": "SELECT c.call_id, c.status, c.output, s.key FROM tool_call c"
            " JOIN session s ON s.id = c.session_id WHERE s.key LIKE :name ORDER BY c.call_id",
            "usage": "SELECT u.response, u.input_tokens, u.output_tokens FROM usage u"
            " JOIN session s ON s.id = u.session_id WHERE s.key LIKE :name ORDER BY u.response",
            "checkpoint": "SELECT c.summary, c.to_position FROM checkpoint c"
            " JOIN session s ON s.id = c.session_id WHERE s.key LIKE :name",
            "session": "SELECT key, state, preview, updated_us FROM session WHERE key LIKE :name ORDER BY key",
            "source": "SELECT path, upto, generation, counts FROM import_source WHERE path LIKE :folder ORDER BY path",
            "batch": "SELECT s.path, b.from_offset, b.upto, b.records FROM import_batch b"
            " JOIN import_source s ON s.seq = b.import_seq WHERE s.path LIKE :folder ORDER BY s.path, b.from_offset",
        }
        return {what: list(sf.rows(text, like)) for what, text in asked.items()}

    def check(self, schedule: crash.Schedule) -> None:
        reading.PIECE_LINES = 5
        apart = self.place / "apart" / f"{self.name}-{os.getpid()}"
        with standfast.open(apart / "standfast.db", data_dir=apart) as calm:
            self.all(calm)
            wanted = self.left(calm)
        with self.open() as sf:
            found = self.left(sf)
            assert {what: len(rows) for what, rows in found.items()} == {
                what: len(rows) for what, rows in wanted.items() if what != "batch"
            } | {"batch": len(found["batch"])}
            for what in ("message", "tool_call", "usage", "checkpoint", "session"):
                assert found[what] == wanted[what], f"{schedule}: {what}"
            ends = [(row["path"], row["upto"]) for row in found["source"]]
            assert ends == [(row["path"], row["upto"]) for row in wanted["source"]]
            (told,) = sf.rows(
                "SELECT count(*) AS n FROM event e JOIN import_source s ON s.id = e.subject"
                " WHERE e.type = 'import.recorded' AND s.path LIKE :folder",
                {"folder": f"{self.folder}%"},
            )
            assert told["n"] == len(found["batch"]), "one row of the journal per batch"
        self.sound()


def sweep(place: str, schedules: int, seed: int) -> None:
    """For the campaigns: many more schedules, killed twice too."""
    world = Imports(str(Path(place) / "store" / "standfast.db"), Path(place))
    options = {"reset": world.reset, "max_schedules": schedules, "seed": seed}
    say(str(crash.sweep(world.live, world.live, world.check, **options)))  # type: ignore[arg-type]


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Imports:
    """One engine each; the parent of a sweep never opens the store."""
    place = tmp_path / "place"
    place.mkdir()
    if request.param == "sqlite":
        return Imports(str(place / "store" / "standfast.db"), place)
    return Imports(request.getfixturevalue("pg_database"), place)


@pytest.mark.parametrize("world", ["sqlite", "postgres"], indirect=True)
def test_killed_anywhere_and_begun_again_an_import_ends_the_same(world: Imports) -> None:
    """000-9: nothing lost, nothing doubled, whatever was killed when."""
    schedules = 8 if "://" in world.url else 24
    count = crash.sweep(world.live, world.live, world.check, reset=world.reset, max_schedules=schedules)
    assert count == schedules


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
def test_the_sweep_passes_every_point_of_an_import(world: Imports) -> None:
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
    assert {name for name in crash.POINTS if name.startswith("import.")} <= passed
