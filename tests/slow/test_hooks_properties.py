"""The records of an agent arrive in any order, some of them twice or late: `standfast_prove.models.hooks`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_hook_reports_in_any_order_agree_with_the_model(engine_url: str, tmp_path: Path) -> None:
    play("hooks", engine_url, tmp_path / "data", examples=4 if engine_url.startswith("postgres") else 15)
