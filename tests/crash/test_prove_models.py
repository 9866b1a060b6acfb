"""The campaign over every model: a seed gives the same run again, and a failure prints the smallest failing program."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast.ledger.credits import Credits
from standfast_prove.campaigns.models import run
from standfast_prove.models import playing


def test_every_model_is_played(tmp_path: Path) -> None:
    outcome = run(tmp_path, seed=1, examples=1)
    assert outcome.bad == []
    assert outcome.seen["programs"] >= len(playing.MODELS)


def test_a_violation_of_a_model_is_reported_with_the_smallest_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "MODELS", ("credits",))
    monkeypatch.setattr(Credits, "grant", lambda self, *args, **more: self.spend(*args, **more, below_zero=True))
    (told,) = run(tmp_path, seed=1, examples=5).bad
    assert "credits (seed 1)" in told
    assert "state.is_granted(" in told
