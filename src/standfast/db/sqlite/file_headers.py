"""The parts of SQLite's file formats that the identity check reads: the header of the database, and the WAL index."""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from standfast.db.sqlite.migrate import APPLICATION_ID

_INDEX = struct.Struct("=14xHII8x8s56xI28xI4x")


class Header(NamedTuple):
    """The header of the database, its first 100 bytes."""

    bytes: bytes
    page_size: int
    changes: int
    pages: int
    schema: int
    application: int

    @classmethod
    def read(cls, fd: int) -> Header:
        found = os.pread(fd, 100, 0)
        if len(found) < 100 or not found.startswith(b"SQLite format 3\0"):
            return cls(found, 0, -1, 0, -1, -1)
        page_size, *numbers = struct.unpack(">16xH6xII8xI24xI28x", found)
        return cls(found, 65536 if page_size == 1 else page_size, *numbers)

    def follows(self, last: Header) -> bool:
        """Whether checkpoints can have changed the header from `last` to this one.

        Before its first checkpoint, a new store has no application id in the header. A power loss in a checkpoint
        leaves a torn header: page 1 is still in the WAL, and the next checkpoint writes it.
        """
        return last.changes < 0 or (
            self.page_size == last.page_size
            and self.changes >= max(last.changes, 0)
            and self.schema >= last.schema
            and self.application in (APPLICATION_ID, last.application)
        )


class WalIndex(NamedTuple):
    """The WAL index, at the start of the `-shm`."""

    page_size: int
    frames: int
    """Frames in the WAL."""
    pages: int
    """Pages of the database, including those that are only in the WAL."""
    salt: bytes
    """The salt of the WAL. SQLite adds 1 when it begins the WAL again."""
    end: int
    """Frames that the last checkpoint has written into the database."""
    goal: int
    """Frames that the last checkpoint intended to write."""

    @classmethod
    def read(cls, fd: int) -> WalIndex:
        found = os.pread(fd, _INDEX.size, 0).ljust(_INDEX.size, b"\xff")  # no valid WAL is this short
        page_size, *others = _INDEX.unpack(found)
        return cls(65536 if page_size == 1 else page_size, *others)

    @property
    def checkpoint(self) -> tuple[bytes, int, int]:
        """The values that a checkpoint changes."""
        return self.salt, self.end, self.goal
