"""Loops on a virtual clock for decades: killed, moved, out of their time; every slot as a model predicts."""

from __future__ import annotations

from pathlib import Path

from standfast.prove.loops_soak import soak
from standfast.prove.outcome import Outcome


def run(place: Path, *, years: int, seed: int = 0) -> Outcome:
    outcome = Outcome("loops")
    try:
        played = soak(place, seed=seed, days=years * 365.25)
    except AssertionError as error:
        outcome.refuse(str(error) or repr(error), f"the store and the model differ (seed {seed})")
        return outcome
    outcome.count("simulated years", years)
    for what, number in sorted(played.items()):
        outcome.count(what, number)
    return outcome
