"""Small file systems: one that fills up, one that becomes read-only, and one that can be cut off.

All of them need root and a kernel that allows mounts. Otherwise they raise `Unavailable`.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from standfast_prove.faults import Unavailable

_FS_IOC_SHUTDOWN = 2 << 30 | 4 << 16 | ord("X") << 8 | 125
_WITHOUT_FLUSHING_ITS_JOURNAL = 2


@contextmanager
def memory(point: Path, *, size: str) -> Iterator[None]:
    """A file system in memory of `size` ("1m") at `point`."""
    point.mkdir(exist_ok=True)
    _command("mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(point))
    try:
        yield
    finally:
        _command("umount", "-l", str(point))


@contextmanager
def read_only(point: Path) -> Iterator[None]:
    """Mount `point` read-only for a while. No process may have a file open for writing there."""
    _command("mount", "-o", "remount,ro", str(point))
    try:
        yield
    finally:
        _command("mount", "-o", "remount,rw", str(point))


@contextmanager
def bound(source: Path, point: Path) -> Iterator[None]:
    """Mount the file or directory `source` at `point` too, as `docker run -v` does."""
    _command("mount", "--bind", str(source), str(point))
    try:
        yield
    finally:
        _command("umount", "-l", str(point))


class Ext4:
    """A real ext4 on a loop device that the kernel can shut down, as at a power loss."""

    def __init__(self, point: Path, *, size_mb: int = 24) -> None:
        self.point, self._size_mb = point, size_mb
        self.point.mkdir()
        memory_backed = Path("/dev/shm")
        where = memory_backed if os.access(memory_backed, os.W_OK) else point.parent
        handle, self._image = tempfile.mkstemp(prefix="standfast-ext4-", dir=where)
        os.truncate(handle, size_mb << 20)
        os.close(handle)
        self._device = ""
        try:
            self._device = _command("losetup", "--find", "--show", self._image)
            self.format()
        except Unavailable:
            self.close()
            raise

    def format(self) -> None:
        """Format the device and mount it."""
        if os.path.ismount(self.point):
            self.restart()  # so that no process has the old file open
            self._unmount()
        _command("mkfs.ext4", "-q", "-F", "-m", "0", "-N", str(self._size_mb * 16), "-J", "size=4", self._device)
        self._mount()

    def cut(self) -> None:
        """From now on no write reaches the device, not even from the file system's journal."""
        directory = os.open(self.point, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, _FS_IOC_SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING_ITS_JOURNAL))
        except OSError as error:
            raise Unavailable(f"this file system cannot be shut down: {error}") from error
        finally:
            os.close(directory)

    def restart(self) -> None:
        """Mount it again, as after a reboot. Every process that used it is dead.

        A mount namespace that was made meanwhile has a copy of the mount. The file system stays cut off until that
        namespace ends. So this method waits for it, and for processes that are still ending.
        """
        end = time.monotonic() + 30
        while True:
            try:
                self._unmount()
                self._mount()
                (self.point / ".probe").touch()
                return
            except (Unavailable, OSError) as error:
                if time.monotonic() > end:
                    raise Unavailable(f"another process keeps the file system: {error}") from error
            time.sleep(0.05)

    def _mount(self) -> None:
        point = os.fsencode(self.point)
        _call("mount", self._device.encode(), point, b"ext4", 0, None)

    def _unmount(self) -> None:
        if os.path.ismount(self.point):
            _call("umount2", os.fsencode(self.point), 0)

    def close(self) -> None:
        try:
            self._unmount()
            if self._device:
                _command("losetup", "--detach", self._device)
        finally:
            os.unlink(self._image)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _call(name: str, *arguments: object) -> None:
    """Call the kernel directly: it is ten times as fast as a command, and there are thousands of cuts."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise Unavailable(f"{name}: {os.strerror(ctypes.get_errno())}")


def _command(*words: str) -> str:
    path = shutil.which(words[0], path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise Unavailable(f"there is no {words[0]}")
    if os.geteuid() != 0:
        raise Unavailable(f"{words[0]} needs root")
    done = subprocess.run([path, *words[1:]], capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()
