"""Short samples of the campaigns `undo` and `digests`, and their controls."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.campaigns import digests, undo


def _url(engine_url: str) -> str | None:
    return engine_url if "://" in engine_url else None


def test_changes_are_undone_as_a_model_says(engine_url: str, tmp_path: Path) -> None:
    """000-42: an undo works only if the value is unchanged, and can itself be undone."""
    outcome = undo.run(tmp_path, url=_url(engine_url), seed=1, examples=4 if _url(engine_url) else 12)
    assert outcome.bad == []
    assert outcome.seen["programs"] >= 4


def test_without_the_comparison_a_later_change_is_lost(tmp_path: Path) -> None:
    """The control."""
    assert undo.run(tmp_path, seed=1, examples=20, unchecked=True).bad != []


def test_what_a_vandal_does_to_the_journal_is_found(engine_url: str, tmp_path: Path) -> None:
    """001-75: rows are edited, removed, swapped, replaced or cut off, digests change, or the journal is rewritten."""
    outcome = digests.run(tmp_path, url=_url(engine_url), seed=2, rounds=12)
    assert outcome.bad == []
    assert outcome.seen["rounds"] == 12


def test_without_a_witness_a_journal_that_was_written_again_passes(tmp_path: Path) -> None:
    """The control: `verify` alone accepts recomputed digests."""
    (complaint,) = digests.run(tmp_path, seed=3, rounds=30, witness=False).bad
    assert "was not found" in complaint
