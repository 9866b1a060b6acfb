"""Ctrl-C at every place where one can strike, again and again, beside threads that write."""

from __future__ import annotations

from pathlib import Path

from standfast.prove.faults.children import Child
from standfast.prove.outcome import Outcome


def run(place: Path, *, seed: int = 0) -> Outcome:
    """Every place of a write, of a transaction in the caller's hands, of a read, and of opening."""
    outcome = Outcome("interrupts")
    for what in ("write", "block", "read"):
        path, oracle = place / f"{what}.db", place / f"{what}.oracle"
        with Child(
            "tests.test_sqlite_interrupts:interrupt_everywhere",
            path=str(path),
            oracle=str(oracle),
            what=what,
            every=1,
        ) as child:
            try:
                struck, counted = child.end(300)
            except AssertionError as error:
                outcome.refuse(error, f"an interrupted {what}")
                continue
        outcome.count("interrupts", int(struck))
        outcome.refuse(counted != "[True]", "something was done twice, or not at all")
    with Child("tests.test_sqlite_interrupts:open_under_interrupts", path=str(place / "open.db"), every=1) as child:
        outcome.count("interrupts", int(child.hear(300)))
    return outcome
