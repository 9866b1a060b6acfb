"""Random programs of every feature are compared after each step with a model of a few lines."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from standfast_prove.extras import wanting
from standfast_prove.faults import Unavailable
from standfast_prove.outcome import Outcome


def run(place: Path, *, seed: int, examples: int = 20, url: str | None = None) -> Outcome:
    """The same seed plays the same programs. A server plays fewer, because each step is a round trip."""
    examples = examples if url is None else max(1, examples // 4)
    if find_spec("hypothesis") is None:
        raise Unavailable(wanting("hypothesis"))
    from standfast_prove.models.playing import MODELS, complaint, play

    outcome = Outcome("models")
    for name in MODELS:
        where = url or str(place / f"{name}.db")
        try:
            outcome.count("programs", play(name, where, place / "data", examples=examples, seed=seed))
        except Exception as error:  # noqa: BLE001  the model expects no error
            outcome.refuse(complaint(error), f"{name} (seed {seed})")
    return outcome
