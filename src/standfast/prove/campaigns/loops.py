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


def run_mutants(place: Path) -> Outcome:
    """Loops with one bug each: every one of them has to be found."""
    from standfast.prove.mutants.loops import MUTANTS, found_by_the_soak

    outcome = Outcome("loops with seeded bugs")
    for number, (name, mutant) in enumerate(MUTANTS.items()):
        (place / str(number)).mkdir()
        outcome.refuse(found_by_the_soak(mutant, place / str(number)) is None, f"not found: {name}")
        outcome.count("seeded bugs")
    return outcome
