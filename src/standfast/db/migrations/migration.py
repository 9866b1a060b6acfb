"""One migration of the schema."""

from __future__ import annotations

from typing import NamedTuple


class Migration(NamedTuple):
    version: int
    name: str
    text: str
    min_writer: int = 1
    """The oldest schema version whose processes may still write beside this one."""

    @property
    def checksum(self) -> str:
        from standfast.serial.digests import sha256

        return sha256(self.text.encode()).hexdigest()[:32]
