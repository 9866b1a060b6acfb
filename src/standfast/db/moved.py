"""The mark that a store moves, or has moved, to another place: one row of `meta`, which every write looks at.

moving ──▶ moved        the target has every row; this store takes no write any more
   └─────▶ (removed)    the move ended before the target had them
"""

from __future__ import annotations

import json
from typing import NamedTuple

from standfast.errors import Busy, StorageError

KEY = "moved"
TOKEN = "move"
"""The key of `meta` by which a target says which moves brought it, the last one at the end."""


class Moved(NamedTuple):
    """Where a store goes, or went."""

    state: str
    """`moving` or `moved`."""
    to: str
    """The address without its password."""
    token: str
    """One per move: the target has the same one once it is complete."""
    holder: str
    """The process that moves it."""

    def dumps(self) -> str:
        return json.dumps(self._asdict(), sort_keys=True, separators=(",", ":"))


def loads(text: str) -> Moved:
    return Moved(**json.loads(text))


def another_mover() -> Busy:
    return Busy(
        "another process moves this store",
        "nothing was written; try again when `standfast db move` has ended",
        code="store_moving",
    )


def moved_away(text: str) -> StorageError:
    """The error for a write into a store that moves or moved."""
    found = loads(text)
    if found.state == "moving":
        return Busy(
            f"this store is being moved to {found.to}",
            "nothing was written; try again when `standfast db move` has ended",
            code="store_moving",
        )
    return StorageError(
        f"this store moved to {found.to}",
        "nothing was written; end this process and start it again with that store: standfast db",
        code="store_moved",
    )
