"""Senders, handlers and credits killed everywhere, and again while they recover: more than a test run has."""

from __future__ import annotations

from pathlib import Path

from standfast.prove.faults.children import Child
from standfast.prove.outcome import Outcome


def run(place: Path, *, schedules: int, url: str | None = None, seed: int = 0) -> Outcome:
    """`schedules` kills and second kills, the sample of this seed."""
    outcome = Outcome("webhooks")
    with Child(
        "tests.crash.test_webhook_sweep:sweep", place=str(place), schedules=schedules, url=url, seed=seed
    ) as child:
        try:
            (played,) = child.end(7200)
            outcome.count("schedules", int(played))
        except AssertionError as error:
            outcome.refuse(error, "webhooks")
    return outcome
