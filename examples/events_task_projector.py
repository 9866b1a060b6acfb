"""The state of a board, computed from its events: now, at any time, and the changes between two sessions. Old events
stay as they were written. An upcast converts them while they are read.

Run it: python examples/events_task_projector.py
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from typing import Any

import standfast
from standfast.record.events import Event


@dataclass
class Board:
    status: dict[str, str] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)


def board(state: Board, event: Event) -> Board:
    """created → started → completed. Current events also name the actor."""
    card = event.data["card"]
    state.status[card] = event.type.partition(".")[0]
    if event.type == "started.v2":
        state.by[card] = event.data["by"]
    return state


def started_by(old: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "started.v2", {**old, "by": "unknown"}


UPCASTS = {"started": started_by}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, standfast.open(data_dir=directory) as sf:
        for night, done in enumerate([["parser"], ["lexer"], ["docs"]], start=1):
            with sf.session(f"night-{night}") as s:
                for card in done:
                    s.log("created", {"card": card}, stream="board", key=f"created:{card}")
                    if night == 1:  # an old event, without an actor
                        s.log("started", {"card": card}, stream="board", key=f"started:{card}")
                    else:
                        s.log("started.v2", {"card": card, "by": f"agent-{night}"}, stream="board")
                    s.log("completed", {"card": card}, stream="board", key=f"completed:{card}")

        now = sf.events.fold("board", board, Board(), name="board:2", upcasts=UPCASTS, returns=Board)
        print(f"now, version {now.version}: {now.state.status}, by {now.state.by}")

        then = sf.events.fold("board", board, Board(), upcasts=UPCASTS, at=5)
        print(f"at version 5: {then.state.status}")

        changed = sf.events.diff("board", board, Board(), upcasts=UPCASTS, between=("night-1", "night-3"))
        for change in changed.changes:
            print(f"since night-1: {change.path} {change.kind}: {change.was} → {change.now}")


if __name__ == "__main__":
    main()
