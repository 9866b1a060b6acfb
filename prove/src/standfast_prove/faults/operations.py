"""Every operation on a directory is recorded, or refused at the n-th: `operations.c`, compiled when first needed.

A process started with `Operations.env` works in `directory` as usual. `log` has its file operations in
order, also those of several processes. `acknowledged` adds a line of the program between them.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from standfast_prove.faults.disk import compiled

SOURCE = Path(__file__).with_name("operations.c")
_HEAD = struct.Struct("<cxHIq")


class Operation(NamedTuple):
    kind: str
    """c create, w write, t truncate, b and s a sync begins and has ended, r rename, u unlink, m make a directory;
    a for a line of the program's own."""
    name: str
    at: int
    """The offset of a write, the size of a truncation, or the thread of a sync."""
    data: bytes


class Operations:
    """Records the operations in one directory."""

    def __init__(self, place: Path, *, recorded: bool = True) -> None:
        self.directory = (place / "files").resolve()
        self.log = place.resolve() / "operations"
        self.directory.mkdir(mode=0o700)
        self.env = {"LD_PRELOAD": str(compiled(SOURCE)), "STANDFAST_TEST_OPERATIONS_DIR": str(self.directory)}
        if recorded:
            self.env["STANDFAST_TEST_OPERATIONS_LOG"] = str(self.log)

    def recorded(self) -> Iterator[Operation]:
        log, at = self.log.read_bytes(), 0
        while at < len(log):
            kind, name_bytes, data_bytes, where = _HEAD.unpack_from(log, at)
            at += _HEAD.size
            name = log[at : at + name_bytes].decode()
            at += name_bytes
            yield Operation(kind.decode(), name, where, log[at : at + data_bytes])
            at += data_bytes


class Told:
    """In a child: append a line of the program to the recording, in order with the operations."""

    def __init__(self, log: str) -> None:
        self._fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, line: str) -> None:
        data = line.encode()
        os.write(self._fd, _HEAD.pack(b"a", 0, len(data), 0) + data)


def refuse(kinds: str, nth: int, error: int = 0, *, lasting: bool = False) -> None:
    """In a child: make the n-th operation of these kinds fail. With `nth` 0 operations are only counted."""
    ctypes.CDLL(None).operations_refuse(kinds.encode(), nth, error, int(lasting))


def counted() -> int:
    """In a child: the number of operations of these kinds since `refuse`."""
    return int(ctypes.CDLL(None).operations_counted())
