"""Where a spool may be, and whether anything is in it: asked by every command, so it loads nothing."""

from __future__ import annotations

import os
from contextlib import suppress

NAME = "spool"
OPEN = "open.ndjson"
ASIDE = ".draining"
TORN = ".tmp"
"""Behind it, while it is written."""
LOST = "lost"
KEY = "spool.key"
"""In the data directory: what seals the records of this account."""


def places(data_dir: str, workspace: str | None) -> list[str]:
    """Where a spool may be, in the order in which they are tried."""
    found = [os.path.join(data_dir, NAME)]
    if workspace:
        found.append(os.path.join(workspace, ".standfast", NAME))
    found.append(os.path.join(os.environ.get("TMPDIR") or "/tmp", f"standfast-{NAME}-{os.getuid()}"))
    return list(dict.fromkeys(found))


def waiting(places: list[str]) -> list[str]:
    """Those of `places` that hold anything: asked by every command, so it costs a look each."""
    found = []
    for place in places:
        with suppress(OSError):
            if any(_ours(name) for name in os.listdir(place)):
                found.append(place)
    return found


def size_bytes(place: str) -> int:
    """How much waits in a spool; 0 if there is none."""
    try:
        with os.scandir(place) as files:
            return sum(file.stat(follow_symlinks=False).st_size for file in files)
    except OSError:
        return 0


def _ours(name: str) -> bool:
    return name in (OPEN, LOST) or name.endswith((ASIDE, ASIDE + TORN))
