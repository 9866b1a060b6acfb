"""Any sequence of calls, crashes and settlements, compared with a small model: `standfast_prove.models.effects`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_effects_do_what_a_model_of_them_does(engine_url: str, tmp_path: Path) -> None:
    play("effects", engine_url, tmp_path / "data", examples=5 if engine_url.startswith("postgres") else 25)
