"""The mark that a store is moving or has moved: one row of `meta`, which every write reads.

moving ──▶ moved        the target has every row; this store takes no write any more
   └─────▶ (removed)    the move ended before the target had them
"""

from __future__ import annotations

import json
from typing import NamedTuple

from standfast import hints
from standfast.errors import Busy, StorageError

KEY = "moved"
TOKEN = "move"
"""The key of `meta` under which a target lists the tokens of the moves that brought it, the last one at the end."""


class Moved(NamedTuple):
    """The target of a move."""

    state: str
    """`moving` or `moved`."""
    to: str
    """The address without its password."""
    token: str
    """One token per move. The target stores the same token when it is complete."""
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
    """The error for a write into a store that is moving or has moved."""
    found = loads(text)
    if found.state == "moving":
        return Busy(
            f"this store is being moved to {found.to}",
            "nothing was written; try again when `standfast db move` has ended",
            code="store_moving",
        )
    return StorageError(
        f"this store moved to {found.to}",
        f"nothing was written; end this process and start it again with that store: {_choosing(found.to)}",
        code="store_moved",
    )


def _choosing(to: str) -> str:
    """The command that chooses the new store. A password is not known here."""
    if "://" in to:
        return hints.command("db", "pg", "URL" if "***" in to else to)
    return hints.command("db", "sqlite", to)
