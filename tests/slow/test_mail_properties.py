"""Mail compared with a small model: `standfast_prove.models.mail`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_mail_does_what_a_model_of_it_does(engine_url: str, tmp_path: Path) -> None:
    play("mail", engine_url, tmp_path / "data", examples=10 if engine_url.startswith("postgres") else 30)
