"""Moving a store's files aside, so that the next open finds an empty place.

The database goes first: from then on the place is empty, and a killed move never leaves a database without
its log. The log is emptied into the database before, under the lock that all writers take. A process that
has the store open keeps its descriptors, finds that they have another name, and reports the store missing.
"""

from __future__ import annotations

import os
from contextlib import suppress

import apsw

from standfast.db.sqlite.lock import FileLock

LOCK_WAIT_S = 30.0
SUFFIXES = ("", "-wal", "-shm", ".bell", ".unsynced", ".unsynced.healing", ".lock")
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


def _empty_log(path: str) -> None:
    if not os.path.exists(path):
        return
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.close()


def _sync(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
