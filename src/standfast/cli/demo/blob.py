"""The agent of `agent.py` with its session in one JSON file, as most people write it first.

The agent saves the file atomically before and after the request. After a crash the file does not show
whether the request was sent, so the agent must guess.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from standfast.cli.demo import model
from standfast.cli.demo.server import ask


def main(server: str, file: str) -> None:
    path = Path(file)
    state = json.loads(path.read_text()) if path.exists() else {}
    if "plan" not in state:
        state["plan"] = model.plan("an empty line ends it early")
        save(path, state)
    if "pull" not in state:  # the file does not say whether a request was sent without an answer
        wanted = {"repo": "demo/parser", **state["plan"], "body": model.describe(state["plan"]["title"])}
        state["pull"] = ask(f"{server}/pulls", wanted)
        save(path, state)
    print(f"opened {state['pull']['url']}")


def save(path: Path, state: object) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
