"""Move a store's files aside, so that the next open finds no store. Under the lock that all writers take, the WAL is
written into the database. Then the database is moved before its side files, so that a killed move never leaves a
database without its WAL. A process that has the store open keeps its descriptors, finds that they have another name,
and reports the store missing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

import apsw

from standfast import crash
from standfast.db.sqlite import library
from standfast.db.sqlite.location import RESTORED
from standfast.db.sqlite.lock import FileLock
from standfast.db.sqlite.wal import SIDE_FILES
from standfast.errors import Busy

LOCK_WAIT_S = 30.0
SUFFIXES = ("", "-wal", "-shm", ".bell", ".unsynced", ".unsynced.healing", ".mover", ".lock")
"""The database and its side files, in the order in which they are moved."""


def files(path: str) -> list[str]:
    """The files of the store that are there."""
    return [path + suffix for suffix in SUFFIXES if os.path.lexists(path + suffix)]


def move_aside(path: str, directory: str, more: list[str]) -> None:
    """Move the store's files, then `more`, into a new directory. Raises Busy if a writer keeps the lock."""
    lock = FileLock(path + ".lock")
    try:
        lock.acquire(LOCK_WAIT_S)
        with suppress(apsw.Error):  # a damaged file is moved as it is
            _empty_log(path)
        os.mkdir(directory, 0o700)
        for name in (*files(path), *more):
            os.rename(name, os.path.join(directory, os.path.basename(name)))
        _sync(directory)
        _sync(os.path.dirname(path))
    finally:
        lock.close()


def swap(path: str, incoming: str, aside: str, before: Callable[[], object], *, sound: bool = True) -> None:
    """Put the database `incoming` in the place of the one at `path`, which moves into the new directory `aside`.

    `before` is called when no process writes into the old one any more, and may raise. Then `incoming` is renamed to
    `path.restored`. From now on, a process that finds no database at `path` renames it to `path`. Raises Busy if a
    writer keeps the lock. A damaged file is moved as it is, with its log.
    """
    lock = FileLock(path + ".lock")
    try:
        lock.acquire(LOCK_WAIT_S)
        alone = not os.path.lexists(path)
        if aside and sound:
            with suppress(apsw.Error):
                _empty_log(path)
        before()
        if aside and alone:  # SQLite would apply a leftover WAL to the new database
            _move(path, aside)
        os.replace(incoming, path + RESTORED)
        _sync(os.path.dirname(path))
        if aside and not alone:
            _move(path, aside)
        crash.point("restore.before_swap")
        os.rename(path + RESTORED, path)
        _sync(os.path.dirname(path))
    finally:
        lock.close()


def left(path: str) -> list[str]:
    """The files at `path` that would be mixed with another database there: the database, or its log alone."""
    return [name for name in (path, *(path + suffix for suffix in SIDE_FILES)) if os.path.lexists(name)]


def _move(path: str, aside: str) -> None:
    """Move the files into the new directory `aside`, the database last. Its log is empty by then."""
    os.mkdir(aside, 0o700)
    for name in (*(path + suffix for suffix in SUFFIXES[1:-1]), path):
        if os.path.lexists(name):
            os.rename(name, os.path.join(aside, os.path.basename(name)))
    _sync(aside)


def _empty_log(path: str) -> None:
    """Checkpoint the WAL into the database. Raises Busy if a reader keeps it for LOCK_WAIT_S: its rows would be lost if
    this process were killed between moving the log and moving the database."""
    if not os.path.exists(path):
        return
    end = time.monotonic() + LOCK_WAIT_S
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
    try:
        while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").get[0]:
            if time.monotonic() > end:
                raise Busy(f"a read of {path} has been open for {LOCK_WAIT_S:.0f} s", "try again when it has ended")
            library.pause(0.05)
    finally:
        connection.close()


def _sync(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
