"""A short sample of the campaigns `damage` and `interrupts`, with their controls."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.campaigns import damage, interrupts


def test_damaged_files_acknowledge_nothing_and_ordinary_work_raises_no_alarm(tmp_path: Path) -> None:
    """R2–R5, 000-1"""
    outcome = damage.run(tmp_path, seed=3, acts=24)
    assert outcome.bad == []
    assert outcome.seen["acts"] >= 24


def test_without_the_identity_check_writes_are_acknowledged_after_the_damage(tmp_path: Path) -> None:
    """The control."""
    outcome = damage.run(tmp_path, seed=3, acts=12, checked=False)
    assert "was acknowledged afterwards" in str(outcome)


@pytest.mark.slow
def test_callers_that_lead_their_commits_hurt_others_when_they_are_hit(tmp_path: Path) -> None:
    """The control: RULES 15 does not hold without the writer thread."""
    assert interrupts.run(tmp_path, seed=1, leading=True, patience_s=3.0).bad
