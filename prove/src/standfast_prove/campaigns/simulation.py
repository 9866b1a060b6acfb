"""All features run at once on a virtual clock. A seed repeats the same run exactly."""

from __future__ import annotations

import hashlib
from pathlib import Path

from standfast_prove.outcome import Outcome
from standfast_prove.simulation.simulating import Simulator


def run(place: Path, *, seed: int, simulations: int = 100, url: str | None = None) -> Outcome:
    """The name of the outcome ends in a hash of everything that happened. The same seed gives the same hash.

    A server plays fewer simulations, because each step is a round trip.
    """
    simulations = simulations if url is None else max(1, simulations // 4)
    outcome, trace = Outcome("simulation"), hashlib.sha256()
    with Simulator(url or str(place / "standfast.db"), place / "data") as simulator:
        for number in range(seed * 1_000, seed * 1_000 + simulations):
            played = simulator.play(number)
            trace.update(played.trace.encode())
            outcome.count("simulations")
            outcome.count("steps", played.steps)
            for what, times in sorted(played.counts.items()):
                outcome.count(what, times)
            outcome.refuse(played.bad[:3], f"simulation {number}")
            if outcome.bad:
                break
    outcome.name = f"simulation {trace.hexdigest()[:12]}"
    return outcome
