"""Apply compared with a small model: `standfast_prove.models.apply`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_apply_does_what_a_model_of_it_does(engine_url: str, tmp_path: Path) -> None:
    """000-28: one key and specification never act twice, with any calls between them."""
    play("apply", engine_url, tmp_path / "data", examples=5 if engine_url.startswith("postgres") else 14)
