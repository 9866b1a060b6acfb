"""Approvals compared with a small model: `standfast_prove.models.approvals`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_nothing_is_dispatched_without_an_approval_of_exactly_these_arguments(engine_url: str, tmp_path: Path) -> None:
    play("approvals", engine_url, tmp_path / "data", examples=6 if engine_url.startswith("postgres") else 20)
