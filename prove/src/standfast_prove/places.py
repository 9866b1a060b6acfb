"""Directories that a run works in. The run deletes them at its end; after a kill the next run does.

A run holds a lock on its directory, and the kernel releases it when the last process that has it exits.
So no process guesses from a pid whether the owner is alive: the process that gets the lock has the directory alone.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from standfast.errors import InvalidInput

PREFIX = "standfast-prove-run-"
_NAME = re.escape(PREFIX) + "[a-z0-9_]{8}"  # the random part of a name, as `tempfile` makes it
_TRIES_MAX = 10


@contextmanager
def kept(where: str | None = None) -> Iterator[Path]:
    """An empty directory. `clear` does not remove it while this process, or a child that it forked, runs."""
    for _ in range(_TRIES_MAX):
        directory = tempfile.TemporaryDirectory(prefix=PREFIX, dir=where)
        lock = _locked(directory.name)
        if lock is not None:
            break
        directory.cleanup()  # another run deleted it before it was locked
    else:
        raise InvalidInput(
            f"directories in {where or tempfile.gettempdir()} cannot be locked", "name another place in TMPDIR"
        )
    try:
        with directory:
            yield Path(directory.name)
    finally:
        os.close(lock)


def clear(*places: str) -> None:
    """Remove the directories of this user's killed runs there, and nothing else. Links are not followed."""
    for place in places:
        try:
            left = [name for name in os.listdir(place) if re.fullmatch(_NAME, name)]
        except OSError:
            continue  # absent or not readable, so it has no directory of ours
        for name in left:
            path = os.path.join(place, name)
            lock = _locked(path)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _locked(path: str) -> int | None:
    """A descriptor with the lock of one of our directories; None if another process holds it, or if it is not ours."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder of the lock may have removed it.
        if os.fstat(lock).st_uid == os.geteuid() and os.path.samestat(os.fstat(lock), os.lstat(path)):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None
