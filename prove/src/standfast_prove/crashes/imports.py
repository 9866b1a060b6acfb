"""Killed at every crash point while transcripts are imported, and again in the recovery. The result is always the same.

The oracle is an undisturbed import into a store of its own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import standfast
from standfast.crash import Schedule
from standfast.interchange.transcripts import files
from standfast_prove.crashes.world import World
from standfast_prove.mutants.patching import Patching
from standfast_prove.transcripts import append, claude, night, user, write


class Imports(World):
    """Imports two sessions, one a fork of the other, with a compaction, and a chat that gets one more turn."""

    def __init__(self, place: Path, url: str | None = None) -> None:
        super().__init__(place, url)
        self.wanted: dict[str, list[dict[str, Any]]] = {}

    @property
    def folder(self) -> Path:
        return self.now / "transcripts" / self.name

    def make(self) -> None:
        """Prepare the store, and the oracle: the same import, undisturbed, into its own store."""
        super().make()
        self.write()
        with standfast.open(self.place / "apart" / "standfast.db", data_dir=self.place / "apart") as calm:
            self.all(calm)
            self.wanted = self.left(calm)
        shutil.rmtree(self.folder)
        self.write()

    def reset(self) -> None:
        super().reset()
        self.write()

    def write(self) -> None:
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

    def live(self) -> None:
        with self.open() as sf:
            self.all(sf)

    def all(self, sf: standfast.Standfast) -> None:
        with Patching() as patch:
            patch.setattr(files, "PIECE_LINES", 5)  # a handful of batches
            self._import(sf)

    def _import(self, sf: standfast.Standfast) -> None:
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
            " m.retracted_us IS NULL AS kept FROM message m JOIN node n ON n.id = m.node_id"
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
        return {what: [self._nameless(row) for row in sf.rows(text, like)] for what, text in asked.items()}

    def _nameless(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The result that every schedule must have."""
        return {
            column: value.replace(str(self.folder), "FOLDER").replace(self.name, "NAME")
            if isinstance(value, str)
            else value
            for column, value in row.items()
        }

    def check(self, schedule: Schedule) -> None:
        wanted = self.wanted
        with self.open() as sf:
            found = self.left(sf)
            assert {what: len(rows) for what, rows in found.items()} == {
                what: len(rows) for what, rows in wanted.items() if what != "batch"
            } | {"batch": len(found["batch"])}
            for what in ("message", "tool_call", "usage", "checkpoint", "session"):
                assert found[what] == wanted[what], f"{schedule}: {what}"
            ends = [(row["path"], row["upto"]) for row in found["source"]]
            assert ends == [(row["path"], row["upto"]) for row in wanted["source"]]
            (acked,) = sf.rows(
                "SELECT count(*) AS n FROM event e JOIN import_source s ON s.id = e.subject"
                " WHERE e.type = 'import.recorded' AND s.path LIKE :folder",
                {"folder": f"{self.folder}%"},
            )
            assert acked["n"] == len(found["batch"]), "one row of the journal per batch"
        self.sound()
