"""Conversations compared with a list: `standfast_prove.models.conversations`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_any_history_reads_like_a_list(engine_url: str, tmp_path: Path) -> None:
    play("conversations", engine_url, tmp_path / "data", examples=10 if engine_url.startswith("postgres") else 25)
