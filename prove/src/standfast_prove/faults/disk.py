"""A disk that keeps only what was synced: `disk.c`, compiled when first needed.

A process started with `Disk.env` writes to `directory` as usual, but each sync also copies the
synced file into the image. `lose_power` then makes the directory look as after a power loss: the image, and a random
part of all later writes.
"""

from __future__ import annotations

import ctypes
import functools
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

from standfast_prove.faults import Unavailable

SOURCE = Path(__file__).with_name("disk.c")
SECTOR_BYTES = 512


def library() -> Path:
    return compiled(SOURCE)


@functools.cache
def compiled(source: Path) -> Path:
    """The library for LD_PRELOAD."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise Unavailable(f"no C compiler to build {source.name} with")
    made = Path(tempfile.mkdtemp(prefix="standfast-disk-")) / f"{source.stem}.so"
    command = [compiler, "-Wall", "-Werror", "-O2", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


def fail_next_sync(suffix: str, nth: int = 1) -> None:
    """In a child on such a disk: make the n-th fsync from now of a file with this name fail."""
    ctypes.CDLL(None).disk_fail_next(suffix.encode(), nth)


class Disk:
    """One directory on a simulated disk that loses unsynced writes."""

    def __init__(self, place: Path, *, sync_us: int = 0) -> None:
        self.directory = (place / "disk").resolve()
        self._image = (place / "image").resolve()
        for path in (self.directory, self._image):
            path.mkdir(mode=0o700)
        self.env = {
            "LD_PRELOAD": str(library()),
            "STANDFAST_TEST_DISK_DIR": str(self.directory),
            "STANDFAST_TEST_DISK_IMAGE": str(self._image),
        }
        if sync_us:
            self.env["STANDFAST_TEST_DISK_SYNC_US"] = str(sync_us)

    @property
    def path(self) -> Path:
        return self.directory / "standfast.db"

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        for path in (self.directory, self._image):
            shutil.rmtree(path)
            path.mkdir(mode=0o700)

    def lose_power(self, chance: random.Random, *, kept: float = 0.0) -> None:
        """Call this after all its processes are dead. Each sector that was not synced survives with probability
        `kept`.
        """
        names = self._names()
        survivors = {name: self._survivor(name, chance, kept) for name in names}
        self.wipe()
        for name, content in survivors.items():
            for place in (self.directory, self._image):
                (place / name).write_bytes(content)
                (place / name).chmod(0o600)
        (self._image / ".names").write_text("".join(f"{name}\n" for name in names))

    def _names(self) -> list[str]:
        """The names that an fsync of the directory has made durable, with "." and ".."."""
        try:
            named = (self._image / ".names").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [name for name in named if name not in (".", "..")]

    def _survivor(self, name: str, chance: random.Random, kept: float) -> bytes:
        synced = _content(self._image / name)
        current = _content(self.directory / name)
        if not kept or not current:
            return synced
        size = chance.choice([len(synced), len(current)])
        sectors = [
            (current if chance.random() < kept else synced)[at : at + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")
            for at in range(0, size, SECTOR_BYTES)
        ]
        return b"".join(sectors)[:size]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
