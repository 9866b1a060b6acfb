"""Two protections that SQLite itself does not have.

*The guard.* POSIX locks belong to the process, and any `open(db).close()` in it, by whatever
library or tool, drops SQLite's locks silently; the next foreign process to close the file then
deletes the log under us, and acknowledged rows are gone. So we hold two locks of our own on
an open file description (which nobody else's close can cancel), over the same bytes: the
shared range of the database and the first byte of the shared memory.

*The witness.* After each sync the log we wrote to must still be the one on disk: an unlinked
file never comes back, so it was there before the sync too. `readlink` on our descriptor says so;
`stat` would cost the next sync half as much again on current kernels. Who writes hundreds of times a second has the
kernel tell when something happens to the log, and looks only then: to ask for news costs a third of a look.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import time

from standfast.db.sqlite import inotify
from standfast.db.sqlite.inotify import BYTES_TO_READ
from standfast.errors import CommitUnknown

_F_OFD_SETLK = 37
_F_FULLFSYNC = 51
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
_SHM_DEADMAN = 128
_LINUX = sys.platform == "linux"
_NONE = bytes(4)
_ioctl = fcntl.ioctl

BUSY_LOOKS, BUSY_S = 256, 2.0
"""So many syncs in so short a time are worth a watch on the log."""


class Log:
    """The write-ahead log on disk: the guard over it, its sync, its identity."""

    def __init__(self, database: str, guard_fd: int) -> None:
        """SQLite has the database open in WAL mode; `guard_fd` was opened before it did."""
        self.path = database + "-wal"
        self._guard_fd = guard_fd
        # No SQLite lock lives on the log itself: opening and closing it is harmless.
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._shm_fd = os.open(database + "-shm", os.O_RDWR | os.O_CLOEXEC)
        if _LINUX:
            _share(guard_fd, _SHARED_FIRST, _SHARED_SIZE)
            _share(self._shm_fd, _SHM_DEADMAN, 1)
        self._link = b"%d" % self._fd
        self._proc_fd = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if _LINUX else -1
        self._name = self._now_named()
        self._told_fd = -1
        self._news = bytearray(4)
        self._looks, self._since = 0, 0.0

    def settle(self, *, durable: bool) -> None:
        """Everything committed before this call is on disk when it returns, in the log that is there.

        One at a time: the kernel tells of a failed write once per open file, so of two syncs that
        share ours the second would hear that all is well. Raises OSError if the disk refuses, and
        CommitUnknown if the log we write to is no longer the one on disk.
        """
        if durable:
            _sync(self._fd)
        if self._told_fd >= 0:
            _ioctl(self._told_fd, BYTES_TO_READ, self._news)
            if self._news == _NONE:
                return
            inotify.drain(self._told_fd)
        elif _LINUX:
            self._have_it_told()
        if self._now_named() != self._name:
            raise CommitUnknown(
                f"{self.path} was removed or replaced while this process was writing to it",
                "look the write up by its key before repeating it; then: standfast doctor",
            )

    def _have_it_told(self) -> None:
        """From now on, if this process is busy enough: others of this user's may need what the kernel can tell."""
        self._looks += 1
        if self._looks < BUSY_LOOKS:
            return
        since, self._since, self._looks = self._since, time.monotonic(), 0
        if self._since - since < BUSY_S:
            try:
                self._told_fd = inotify.told_of(f"/proc/self/fd/{self._fd}", inotify.CHANGED | inotify.MOVED)
            except OSError:
                self._looks = -(2**62)  # the kernel tells no more of them: we look, as we did

    def _now_named(self) -> bytes:
        if _LINUX:
            return os.readlink(self._link, dir_fd=self._proc_fd)
        return b"linked" if os.fstat(self._fd).st_nlink else b"gone"

    def size_bytes(self) -> int:
        return os.stat(self.path).st_size

    def close(self) -> None:
        """After SQLite has closed: the guard goes last."""
        for fd in (self._told_fd, self._fd, self._proc_fd, self._shm_fd, self._guard_fd):
            if fd >= 0:
                os.close(fd)


def _sync(fd: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(fd, _F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def _share(fd: int, start: int, length: int) -> None:
    request = struct.pack("@hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, start, length, 0)
    try:
        fcntl.fcntl(fd, _F_OFD_SETLK, request)
    except OSError as error:
        # A foreign process may hold the whole file exclusively for a moment (recovery); the
        # caller retries its open.
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise BlockingIOError(error.errno, "the database is locked by another program") from error
