"""Leases compared with a small model: `standfast_prove.models.leases`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_a_lock_always_has_at_most_one_live_holder(engine_url: str, tmp_path: Path) -> None:
    play("leases", engine_url, tmp_path / "data", examples=15 if engine_url.startswith("postgres") else 40)
