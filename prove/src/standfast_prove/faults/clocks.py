"""Clocks that many processes share."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from standfast.clock import SECOND_US


class SharedClock:
    """A clock that one process moves and all others read. Each process can have another date."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(struct.pack("q", SECOND_US))
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)
        self.jump_us = 0

    def mono_us(self) -> int:
        value: int = struct.unpack_from("q", self._map)[0]
        return value

    def now_us(self) -> int:
        return 1_767_225_600_000_000 + self.mono_us() + self.jump_us

    def boot_id(self) -> str:
        return "one boot for all"

    def advance(self, us: int) -> None:
        struct.pack_into("q", self._map, 0, self.mono_us() + us)
