"""Credits compared with a dictionary: `standfast_prove.models.credits`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.models.playing import play


def test_credits_do_what_a_dictionary_does(engine_url: str, tmp_path: Path) -> None:
    """000-22: repeated calls in any order leave the same ledger."""
    play("credits", engine_url, tmp_path / "data", examples=6 if engine_url.startswith("postgres") else 20)
