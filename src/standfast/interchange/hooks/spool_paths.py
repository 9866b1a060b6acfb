"""The directories of spools, and whether they hold records. Every command loads this module, so it imports little."""

from __future__ import annotations

import os
from contextlib import suppress

NAME = "spool"
OPEN = "open.ndjson"
ASIDE = ".draining"
TORN = ".tmp"
"""The end of a file name while the file is being written."""
LOST = "lost"
KEY = "spool.key"
"""In the data directory: the key that seals the records of this account."""


def places(data_dir: str, workspace: str | None) -> list[str]:
    """The directories of spools, in the order in which hooks try them."""
    found = [os.path.join(data_dir, NAME)]
    if workspace:
        found.append(os.path.join(workspace, ".standfast", NAME))
    found.append(os.path.join(os.environ.get("TMPDIR") or "/tmp", f"standfast-{NAME}-{os.getuid()}"))
    return list(dict.fromkeys(found))


def waiting(places: list[str]) -> list[str]:
    """The directories among `places` that hold records."""
    found = []
    for place in places:
        with suppress(OSError):
            if any(_ours(name) for name in os.listdir(place)):
                found.append(place)
    return found


def size_bytes(place: str) -> int:
    """The size of a spool; 0 if there is none."""
    try:
        with os.scandir(place) as files:
            return sum(file.stat(follow_symlinks=False).st_size for file in files)
    except OSError:
        return 0


def _ours(name: str) -> bool:
    return name in (OPEN, LOST) or name.endswith((ASIDE, ASIDE + TORN))
