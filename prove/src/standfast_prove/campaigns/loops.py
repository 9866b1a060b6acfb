"""Loops fire for decades on a virtual clock, with kills, moves and clock changes; a model predicts every slot."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.loops_soak import soak
from standfast_prove.outcome import Outcome


def run(place: Path, *, years: int, seed: int = 0, url: str | None = None) -> Outcome:
    """Play whole years on SQLite, and a month on PostgreSQL, where every step is a round trip."""
    outcome, days = Outcome("loops"), years * 365.25 if url is None else years * 30.0
    try:
        played = soak(place, seed=seed, days=days, url=url)
    except AssertionError as error:
        outcome.refuse(str(error) or repr(error), f"the store and the model differ (seed {seed})")
        return outcome
    if url is None:
        outcome.count("simulated years", years)
    outcome.count("simulated days", round(days))
    for what, number in sorted(played.items()):
        outcome.count(what, number)
    return outcome
