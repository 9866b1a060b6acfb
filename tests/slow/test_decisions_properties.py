"""Decisions compared with a small model: `standfast_prove.models.decisions`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_openings_and_crashes_in_any_order_leave_the_same_rows(engine_url: str, tmp_path: Path) -> None:
    play("decisions", engine_url, tmp_path / "data", examples=5 if engine_url.startswith("postgres") else 20)
