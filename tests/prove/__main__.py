"""The campaigns that need other software: `python -m tests.prove agents|langgraph|langgraph-control`.

They run real coding agents from npm and LangGraph's official savers, which `standfast prove` does not install.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from standfast_prove.faults import Unavailable
from standfast_prove.outcome import Outcome
from tests.prove import agents, langgraph

CAMPAIGNS: dict[str, Callable[[Path], Outcome]] = {
    "agents": lambda place: agents.run(0),
    "langgraph": langgraph.run,
    "langgraph-control": lambda place: langgraph.run(place, official=True),
}


def main(names: list[str]) -> int:
    wrong = False
    for name in names or list(CAMPAIGNS):
        with tempfile.TemporaryDirectory(prefix="standfast-prove-") as place:
            try:
                outcome = CAMPAIGNS[name](Path(place))
            except Unavailable as missing:
                print(f"{name}: NOT SHOWN on this machine: {missing}")
                continue
        print(outcome)
        # Two of the faults occur only by chance. A control must find at least the others.
        wrong |= len(outcome.bad) < langgraph.CERTAIN if name.endswith("control") else bool(outcome.bad)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
