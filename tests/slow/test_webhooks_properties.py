"""Webhooks compared with a small model: `standfast_prove.models.webhooks`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_webhooks_do_what_a_model_of_them_does(engine_url: str, tmp_path: Path) -> None:
    play("webhooks", engine_url, tmp_path / "data", examples=8 if engine_url.startswith("postgres") else 30)
