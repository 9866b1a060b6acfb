"""Random and damaged input is sent to one entry point, a number of inputs per run. `standfast_prove.fuzz` makes it."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.faults.children import Child
from standfast_prove.outcome import Outcome

PATIENCE_S = 600.0


def run(
    place: Path, *, door: str, inputs: int, seed: int = 0, url: str | None = None, program: bool = False
) -> Outcome:
    outcome = Outcome(f"inputs at {door}")
    module = "programs" if program else "doors"
    target = f"standfast_prove.fuzz.{module}:knock"
    with Child(target, door=door, place=str(place), seed=seed, inputs=inputs, url=url) as child:
        try:
            (thrown,) = child.end(PATIENCE_S)
            outcome.count("inputs", int(thrown))
        except AssertionError as error:
            last = (place / "last").read_text(errors="replace").strip() if (place / "last").exists() else ""
            outcome.refuse(f"{error} [last: {last[:600]}]", door)
    return outcome
