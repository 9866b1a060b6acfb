"""State compared with a small model: `standfast_prove.models.state`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_state_does_what_a_model_of_it_does(engine_url: str, tmp_path: Path) -> None:
    """001-68, 001-46: versions, refusals and expiry. One model serves both engines."""
    play("state", engine_url, tmp_path / "data", examples=10 if engine_url.startswith("postgres") else 30)
