"""One daemon per data directory: a locked file that is never deleted.

The kernel releases the lock when the process that holds it dies. So a stale file, a reused pid or garbage in the file
never prevents a daemon from starting. A dead daemon never counts as running. The text in the file only names the
holder: pid, host, boot, pid namespace and start time. So `daemon stop` never signals a process that reuses the pid of a
dead daemon. On a full disk the file may stay empty. The lock still works, and the kernel gives the pid.

The file does not show daemons of other machines, so the daemon also holds the lease `daemon` in the store.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from standfast.core.leases import holder_text, is_here, parse_process, process
from standfast.db.sqlite.lock import holder as lock_holder
from standfast.errors import InProgress, StorageError, UnsafeStorage

if TYPE_CHECKING:
    from standfast.clock import Clock

NAME = "daemon.pid"
PADDED_BYTES = 256
"""Overwritten in place, so that the next daemon needs no new space on a full disk."""
PATIENCE_S = 0.5
"""How long to retry the lock. A reader may hold a shared lock for a short time."""


class Found(NamedTuple):
    """The process that holds the lock, as far as this process can see it."""

    running: bool
    pid: int | None = None
    process: str | None = None
    """The identity of the process. None if the file has none or an outdated one."""


class Instance:
    """The lock, held until `close` or until the process ends."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self.path = os.path.join(directory, NAME)
        self.process = str(process(os.getpid(), clock))
        self.written = False
        """False if the disk was too full to write the holder."""
        self._fd = _locked(self.path, clock)
        os.register_at_fork(after_in_child=self.close)  # a child with a copy would keep the lock after we exit
        self._write()

    def _write(self) -> None:
        text = f"{os.getpid()} {self.process}".encode()
        try:
            os.pwrite(self._fd, text.ljust(PADDED_BYTES - 1) + b"\n", 0)
            os.ftruncate(self._fd, PADDED_BYTES)
            os.fsync(self._fd)
            self.written = True
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def valid(self) -> bool:
        """Whether the path still names the file that we locked. A lock on a deleted file excludes no other daemon."""
        return _same(self._fd, self.path)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def find(directory: str, clock: Clock) -> Found:
    """The daemon of this data directory. Changes nothing.

    Raises UnsafeStorage if the file is a link or no regular file.
    """
    path = os.path.join(directory, NAME)
    try:
        fd = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return Found(running=False)
    try:
        if _try_lock(fd, fcntl.LOCK_SH):
            return Found(running=False)
        return _holder(fd, path, clock)
    finally:
        os.close(fd)


def _holder(fd: int, path: str, clock: Clock) -> Found:
    pid, _, identity = os.pread(fd, PADDED_BYTES, 0).decode(errors="replace").strip().partition(" ")
    told = parse_process(identity)
    if told is not None and str(told.pid) == pid and is_here(identity, clock):
        return Found(running=True, pid=told.pid, process=identity)
    seen = lock_holder(path)  # the file may be empty, stale or damaged: ask the kernel which process holds the lock
    return Found(running=True, pid=seen, process=str(process(seen, clock)) if seen else None)


def _locked(path: str, clock: Clock) -> int:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            fd = _open(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageError(f"no space for {path}", "free some space", code="disk_full") from None
            raise
        if _try_lock(fd, fcntl.LOCK_EX):
            if _same(fd, path):
                return fd
        elif time.monotonic() > end:
            found = _holder(fd, path, clock)
            os.close(fd)
            raise running_already(found)
        os.close(fd)
        time.sleep(0.01)


def running_already(found: Found) -> InProgress:
    name = holder_text(found.process) if found.process else "a process that cannot be seen from here"
    return InProgress(f"the daemon of this data directory is {name}", "see what it does: standfast daemon status")


def _open(path: str, flags: int) -> int:
    """Open it. Refuses a link, a special file and a file of another user."""
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO):
            raise _unsafe(path, "it is not a regular file") from None
        raise
    info = os.fstat(fd)
    wrong = None
    if not stat.S_ISREG(info.st_mode):
        wrong = "it is not a regular file"
    elif info.st_nlink > 1:
        wrong = "it has a second name"
    elif info.st_uid != os.geteuid() and os.geteuid() != 0:
        wrong = f"it belongs to user {info.st_uid}"
    if wrong is not None:
        os.close(fd)
        raise _unsafe(path, wrong)
    return fd


def _unsafe(path: str, why: str) -> UnsafeStorage:
    return UnsafeStorage(f"{path} cannot guard the daemon: {why}", f"inspect it (ls -l {path}), then move it away")


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _same(fd: int, path: str) -> bool:
    """Whether the path still names the file that we have open."""
    try:
        there, ours = os.lstat(path), os.fstat(fd)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
