"""The lock between processes: one `flock` on a side file that is never deleted.

A free lock costs one system call. The writer thread waits for a taken lock in the kernel's queue, which is
fair. A blocking `flock` has no deadline, so only that thread uses it: callers wait for the thread and can
give up. Opening a store and truncating its WAL poll instead, because they need a deadline of their own.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from contextlib import suppress

from standfast.errors import Busy, StorageError

TRIES = 5
"""Tries before the writer thread waits in the kernel. Processes hold the lock for about 50 µs. More tries would starve
waiting processes."""
_POLL_S = 0.001
ALARM = 0xFFFFFFFF
_NOTE = struct.Struct(">III")
_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
_flock = fcntl.flock


class FileLock:
    """Held by one thread of one process at a time. Not reentrant; one caller at a time per object."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._fd = _open(path)

    def take(self) -> bool:
        """Take the lock if it is free now."""
        try:
            _flock(self._fd, _NOW)
        except BlockingIOError:
            return False
        return True

    def wait(self) -> None:
        """Wait for the lock without a deadline. Only the writer thread calls it."""
        for _ in range(TRIES):
            if self.take():
                return
            os.sched_yield()
        _flock(self._fd, fcntl.LOCK_EX)

    def acquire(self, timeout_s: float) -> None:
        """Take the lock, or raise Busy naming the holder after `timeout_s`."""
        end = time.monotonic() + timeout_s
        while not self.take():
            if time.monotonic() > end:
                raise busy(self.path, timeout_s)
            time.sleep(_POLL_S)

    def release(self) -> None:
        _flock(self._fd, fcntl.LOCK_UN)

    def changes(self) -> int:
        """The change counter that the last checkpoint of an engine left in the database; 0 if none is noted."""
        return int.from_bytes(os.pread(self._fd, 4, 0), "big")

    def noted(self) -> tuple[int, int, int]:
        return noted(self._fd)

    def note(self, changes: int, salt: int, base: int) -> None:
        """Write the present change counter, the salt of the WAL, and the change counter when that WAL began. The caller
        holds the lock. On a full disk nothing is written, and each process compares only with its own last check.
        """
        with suppress(OSError):
            os.pwrite(self._fd, _NOTE.pack(changes, salt, base), 0)

    def note_alarm(self) -> None:
        """Write a change counter that no database reaches, so that the identity check of every process fails."""
        with suppress(OSError):
            os.pwrite(self._fd, ALARM.to_bytes(4, "big"), 0)

    def close(self) -> None:
        """A forked child calls it too: an inherited descriptor would keep the parent's lock after the parent's
        death."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close


def noted(fd: int) -> tuple[int, int, int]:
    """The numbers that `note` wrote into the open file; 0 for each number that is not noted."""
    changes, salt, base = _NOTE.unpack(os.pread(fd, _NOTE.size, 0).ljust(_NOTE.size, b"\0"))
    return changes, salt, base


def busy(path: str, timeout_s: float) -> Busy:
    """The error after a deadline. It names the holder, if this process can see it."""
    pid = holder(path)
    who = f"process {pid} ({_command(pid)}) holds it" if pid else "a process outside this container holds it"
    return Busy(
        f"the store's lock was not free within {timeout_s:.1f} s: {who}",
        f"if that process hangs, end it: kill {pid}" if pid else "see the lock: standfast doctor",
    )


def holder(path: str) -> int | None:
    """The pid that holds the lock now, read from the kernel; None if no visible process does."""
    try:
        inode = os.stat(path).st_ino
        with open("/proc/locks") as locks:
            for line in locks:
                fields = line.split()
                if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
                    return int(fields[4])
    except (OSError, ValueError, IndexError):
        pass
    return None


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(200).replace(b"\0", b" ").decode(errors="replace").strip() or "?"
    except OSError:
        return "?"


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise cannot_open(path, error) from error


def cannot_open(path: str, error: OSError) -> StorageError:
    """The error for a file of the store that the system did not open."""
    if isinstance(error, NotADirectoryError):
        return StorageError(
            f"{os.path.dirname(path)} is not a directory",
            "name a directory: standfast.open(data_dir=…), or STANDFAST_DATA_DIR in the environment",
            code="not_writable",
        )
    return StorageError(
        f"{path} cannot be opened: {error.strerror}",
        "check the directory: standfast doctor",
        code="not_writable",
    )


def free_now(path: str) -> bool:
    """Whether the lock is free at this moment, without keeping it."""
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
