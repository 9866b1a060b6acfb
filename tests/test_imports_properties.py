"""Whatever a live agent does to its file between imports: `standfast.prove.models.imports`."""

from __future__ import annotations

from pathlib import Path

from standfast.prove.models.playing import play


def test_what_was_finished_is_there_once_in_order(engine_url: str, tmp_path: Path) -> None:
    """000-9, 002-3: appended, interrupted, copied, moved or rewritten: imported exactly once."""
    play("imports", engine_url, tmp_path / "data", examples=5 if engine_url.startswith("postgres") else 25)
