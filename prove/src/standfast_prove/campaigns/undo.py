"""Random changes and undos are compared with a model after every step.

In the control an undo puts the old row back without comparing the current row first.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from standfast.admin import undo
from standfast_prove.extras import wanting
from standfast_prove.faults import Unavailable
from standfast_prove.outcome import Outcome


def run(place: Path, *, seed: int = 0, examples: int = 60, url: str | None = None, unchecked: bool = False) -> Outcome:
    if find_spec("hypothesis") is None:
        raise Unavailable(wanting("hypothesis"))
    from standfast_prove.models.playing import complaint, play

    outcome, compare = Outcome("undo"), undo._is_as_written
    where = url or str(place / "undo.db")
    if unchecked:
        undo._is_as_written = lambda now, new: True
    try:
        outcome.count("programs", play("undo", where, place / "data", examples=examples, seed=seed, small=False))
    except Exception as error:  # noqa: BLE001  the model expects no error
        outcome.refuse(complaint(error), f"undo (seed {seed})")
    finally:
        undo._is_as_written = compare
    return outcome
