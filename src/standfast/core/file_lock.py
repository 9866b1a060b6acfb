"""A lock between processes: `flock` on a file that has no other use and is never removed."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from standfast.errors import Busy

CHECK_S = 0.01


def opened(path: str) -> int:
    """The descriptor of the lock file, which is made if it is not there. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


@contextmanager
def locked(fd: int, fact: str, hint: str, *, wait_s: float, shared: bool = False) -> Iterator[None]:
    """Hold the lock on an `opened` file, alone or `shared`. Raises Busy with `fact` and `hint` after `wait_s`."""
    try:
        _wait(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, wait_s, Busy(fact, hint))
        yield
    finally:
        # Unlock explicitly. A child that was forked meanwhile has a copy of the descriptor, so closing ours keeps
        # the lock.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _wait(fd: int, kind: int, wait_s: float, busy: Busy) -> None:
    end = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise busy from None
            time.sleep(CHECK_S)
