"""Agents compared with a small model: `standfast_prove.models.agents`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_agents_are_what_a_model_of_them_is(engine_url: str, tmp_path: Path) -> None:
    """001-50: status and current task. Whether an agent is stale is derived, not stored."""
    play("agents", engine_url, tmp_path / "data", examples=6 if engine_url.startswith("postgres") else 16)
