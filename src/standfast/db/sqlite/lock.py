"""The turn-taking between processes: one `flock` on a side file that is never deleted.

A free lock costs one system call. A taken one is waited for in the kernel's queue, which is
fair, by a thread of ours, so that the caller can give up at its deadline: a blocking `flock`
itself cannot be given a deadline, and polling starves whoever sleeps longest. The waiting
thread has its own open file, so that its late success never looks like the caller's lock.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress
from functools import partial

from standfast.db.sqlite.signals import HeldBack
from standfast.errors import Busy, StorageError

TRIES = 5
"""A few tries before queueing: the lock is held for some 50 µs. More of them would starve who queues."""
_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
_flock = fcntl.flock


class FileLock:
    """Held by one thread of one process at a time. Not reentrant; one caller at a time per object."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = _open(path)
        self._held: int | None = None
        self._mutex = threading.Lock()
        self._waiter: _Waiter | None = None

    def acquire(self, timeout_s: float, signals: HeldBack | None = None) -> None:
        """Take the lock, or raise Busy naming the holder after `timeout_s`."""
        for _ in range(TRIES):
            if self.take():
                return
            os.sched_yield()
        self._wait(timeout_s, signals)

    def take(self) -> bool:
        """Take the lock if it is free now."""
        try:
            _flock(self._fd, _NOW)
        except BlockingIOError:
            return False
        self._held = self._fd
        return True

    def _wait(self, timeout_s: float, signals: HeldBack | None) -> None:
        if self._waiter is None:
            self._waiter = _Waiter(self.path)
        if not self._waiter.acquire(timeout_s, signals):
            raise busy(self.path, timeout_s)
        self._held = self._waiter.fd

    def release(self) -> None:
        fd, self._held = self._held, None
        if fd is not None:
            _flock(fd, fcntl.LOCK_UN)

    def drop_copies(self) -> None:
        """In a forked child: an inherited descriptor would keep the parent's lock after its death."""
        os.close(self._fd)
        if self._waiter is not None:
            os.close(self._waiter.fd)

    def close(self) -> None:
        self.release()
        os.close(self._fd)
        if self._waiter is not None:
            self._waiter.stop()


class _Waiter:
    """A thread that stands in the kernel's queue for somebody who has a deadline."""

    def __init__(self, path: str) -> None:
        self.fd = _open(path)
        self._mutex = threading.Lock()
        self._wanted = False
        self._queued = False
        self._stopped = False
        self._call = threading.Lock()
        self._call.acquire()
        self._granted = threading.Lock()
        self._granted.acquire()
        threading.Thread(target=self._run, name="standfast-lock", daemon=True).start()

    def acquire(self, timeout_s: float, signals: HeldBack | None) -> bool:
        wait = self._granted.acquire if signals is None else partial(signals.wait, self._granted)
        with self._mutex:
            self._wanted = True
            call = not self._queued
            self._queued = True
        if call:
            self._call.release()
        try:
            if wait(timeout=max(timeout_s, 0.001)):
                return True
        except BaseException:
            if self._give_up():
                fcntl.flock(self.fd, fcntl.LOCK_UN)
            raise
        return self._give_up()

    def _give_up(self) -> bool:
        """Stop wanting the lock; True if it was granted between the timeout and here: it is ours after all."""
        with self._mutex:
            self._wanted = False
            return self._granted.acquire(blocking=False)

    def _run(self) -> None:
        while True:
            self._call.acquire()
            if self._stopped:
                break
            fcntl.flock(self.fd, fcntl.LOCK_EX)
            with self._mutex:
                self._queued = False
                if self._wanted:
                    self._wanted = False
                    self._granted.release()
                else:
                    fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)

    def stop(self) -> None:
        self._stopped = True
        with suppress(RuntimeError):  # it was called already and has not looked yet
            self._call.release()


def busy(path: str, timeout_s: float) -> Busy:
    """The refusal after a deadline: who is in the way, as far as this process can see."""
    pid = holder(path)
    who = f"process {pid} ({_command(pid)}) holds it" if pid else "a process outside this container holds it"
    return Busy(
        f"the store's lock was not free within {timeout_s:.1f} s: {who}",
        f"if that process hangs, end it: kill {pid}" if pid else "standfast doctor shows what is known",
    )


def holder(path: str) -> int | None:
    """The pid that holds the lock now, read from the kernel; None if nobody visible does."""
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
    """The refusal of a file of the store that the system does not give us."""
    return StorageError(
        f"{path} cannot be opened: {error.strerror}",
        "standfast doctor tells what is wrong with the place",
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


def wait_free(path: str, timeout_s: float) -> bool:
    """Wait until the lock is free; for tests and upkeep, not for the write path."""
    end = time.monotonic() + timeout_s
    while not free_now(path):
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
