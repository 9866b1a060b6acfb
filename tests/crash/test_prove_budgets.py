"""The campaign `budgets`: processes with threads share a budget and are killed; the provider's bill is the oracle."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.campaigns.budgets import run


def test_killed_agents_never_use_more_than_their_budget(engine_url: str, tmp_path: Path) -> None:
    """000-46, 000-47: the budget counts every call on the bill as spent or reserved; the sum is within the limit."""
    played = run(tmp_path, url=engine_url, seed=1, limit=3_000, kills=3)
    assert played.bad == []
    assert played.seen["kills"] == 3
    assert played.seen["calls"] >= 3_000 // 30


def test_a_governor_that_checks_and_then_adds_uses_more(tmp_path: Path) -> None:
    """The control: without the reservation the campaign sees the bill exceed the limit."""
    played = run(tmp_path, seed=1, limit=3_000, kills=1, check_then_add=True)
    assert any("the bill is higher than the limit" in sentence for sentence in played.bad)
