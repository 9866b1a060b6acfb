"""Sessions compared with a small model: `standfast_prove.models.sessions`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_sessions_behave_like_their_model(engine_url: str, tmp_path: Path) -> None:
    play("sessions", engine_url, tmp_path / "data", examples=8 if engine_url.startswith("postgres") else 30)
