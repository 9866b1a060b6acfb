"""What goes wrong, made to go wrong: children to kill, disks that forget, fail and fill up.

    children   processes with a conversation, and a nursery that forks them in milliseconds
    disk       a library loaded before libc: only synced bytes survive, syncs fail on command
    mounts     small file systems: full, read-only, or cut off as by a power failure
    rows       the simplest rows a store can hold, and looking at what is left of them

Nothing here is imported by the product, and the product has no switch for any of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Unavailable(Exception):
    """This machine cannot make that go wrong; the message says what is missing."""


@contextmanager
def or_skip() -> Iterator[None]:
    """Around a test: what this machine cannot show is skipped by name, never passed silently."""
    import pytest

    try:
        yield
    except Unavailable as missing:
        pytest.skip(f"NOT SHOWN on this machine: {missing}")
