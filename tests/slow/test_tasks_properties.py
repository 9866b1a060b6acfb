"""Tasks compared with a small model: `standfast_prove.models.tasks`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_tasks_do_what_a_model_of_them_does(engine_url: str, tmp_path: Path) -> None:
    play("tasks", engine_url, tmp_path / "data", examples=10 if engine_url.startswith("postgres") else 30)
