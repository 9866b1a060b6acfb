"""The turn-taking between processes: one `flock` on a side file that is never deleted.

A free lock costs one system call. A taken one is waited for in the kernel's queue, which is
fair, by a thread of ours, so that the caller can give up at its deadline: a blocking `flock`
itself cannot be given a deadline, and polling starves whoever sleeps longest. The waiting
thread has its own open file, so that its late success never looks like the caller's lock.

What is to be done under the lock is done by whichever thread has it: to wake another one first would keep all other
processes waiting meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from standfast.db.sqlite.signals import HeldBack, Struck
from standfast.errors import Busy, StorageError

TRIES = 5
"""A few tries before queueing: the lock is held for some 50 µs. More of them would starve who queues."""
_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
_flock = fcntl.flock

Work = Callable[[], None]


class FileLock:
    """Held by one thread of one process at a time. Not reentrant; one caller at a time per object."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = _open(path)
        self._held: int | None = None
        self._waiter: _Waiter | None = None

    def acquire(self, timeout_s: float, signals: HeldBack | None = None) -> None:
        """Take the lock, or raise Busy naming the holder after `timeout_s`."""
        if not self._take_soon():
            self._wait(timeout_s, signals)

    def run(self, work: Work, timeout_s: float, signals: HeldBack) -> None:
        """Do `work` under the lock, in this thread or in one that waited; or raise Busy. Raises what `work` raises."""
        if self._take_soon():
            try:
                work()
            finally:
                self.release()
        elif not self._waiting().run(work, timeout_s, signals):
            raise busy(self.path, timeout_s)

    def _take_soon(self) -> bool:
        for _ in range(TRIES):
            if self.take():
                return True
            os.sched_yield()
        return False

    def take(self) -> bool:
        """Take the lock if it is free now."""
        try:
            _flock(self._fd, _NOW)
        except BlockingIOError:
            return False
        self._held = self._fd
        return True

    def _wait(self, timeout_s: float, signals: HeldBack | None) -> None:
        waiter = self._waiting()
        if not waiter.acquire(timeout_s, signals):
            raise busy(self.path, timeout_s)
        self._held = waiter.fd

    def _waiting(self) -> _Waiter:
        if self._waiter is None:
            self._waiter = _Waiter(self.path)
        return self._waiter

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


class _Turn:
    """What one caller wants of the lock: that `work` is done under it, or, without any, the lock itself."""

    __slots__ = ("_done", "begun", "error", "over", "struck", "work")

    def __init__(self, work: Work | None = None) -> None:
        self.work = work
        self.begun = self.over = False
        self.error: BaseException | None = None  # what `work` raised
        self.struck: BaseException | None = None  # what struck the caller while it waited
        self._done = done = threading.Lock()
        done.acquire()

    def ends(self) -> None:
        self.over = True
        self._done.release()

    def wait(self, timeout_s: float, signals: HeldBack | None) -> bool:
        """Until it is over; False after `timeout_s`, or soon after a signal came, which is kept."""
        if signals is None:
            return self._done.acquire(timeout=max(timeout_s, 0.001))
        return signals.wait_unless_struck(self._done, timeout_s)

    def wait_for_the_end(self) -> None:
        """It was begun, so it ends soon, whatever comes meanwhile."""
        while not self.over:
            try:
                self._done.acquire(timeout=0.1)
            except BaseException as error:  # noqa: BLE001  # raised when it is over
                self.struck = error


class _Waiter:
    """A thread that stands in the kernel's queue for somebody who has a deadline."""

    def __init__(self, path: str) -> None:
        self.fd = _open(path)
        self._mutex = threading.Lock()
        self._wanted: _Turn | None = None
        self._queued = False
        self._stopped = False
        self._call = threading.Lock()
        self._call.acquire()
        threading.Thread(target=self._run, name="standfast-lock", daemon=True).start()

    def acquire(self, timeout_s: float, signals: HeldBack | None) -> bool:
        """Signals are let through meanwhile. Raises what their handlers raise."""
        turn = _Turn()
        had = self._have(turn, timeout_s, signals)
        if turn.struck is not None:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
            raise turn.struck
        return had

    def run(self, work: Work, timeout_s: float, signals: HeldBack) -> bool:
        """Signals are let through as long as nothing was begun: what is being done is done."""
        end = time.monotonic() + timeout_s
        while True:
            turn = _Turn(work)
            if not self._have(turn, end - time.monotonic(), signals):
                return False
            if turn.struck is not None:
                raise turn.struck
            if turn.error is None:
                return True
            if not isinstance(turn.error, Struck):
                raise turn.error
            signals.let_through()

    def _have(self, turn: _Turn, timeout_s: float, signals: HeldBack | None) -> bool:
        """Ask for a turn and wait until it is over. False if it was not begun by then, and is not wanted any more.

        What strikes meanwhile is raised if nothing was begun, and left in the turn if it was.
        """
        end = time.monotonic() + timeout_s
        while True:
            try:
                self._ask_for(turn)
                if turn.wait(end - time.monotonic(), signals):
                    return True
            except BaseException as error:  # noqa: BLE001  # raised when it is known how far the turn is
                turn.struck = error
            if not self._withdrawn(turn):
                turn.wait_for_the_end()
                return True
            if turn.struck is not None:
                raise turn.struck
            if signals is not None:
                signals.let_through()
            if time.monotonic() >= end:
                return False

    def _ask_for(self, turn: _Turn) -> None:
        with self._mutex:
            self._wanted = turn
            if not self._queued:
                with suppress(RuntimeError):  # it was called before, and whoever did was struck the next moment
                    self._call.release()
                self._queued = True

    def _withdrawn(self, turn: _Turn) -> bool:
        """Whether it was not begun, and never will be."""
        while True:
            try:
                with self._mutex:
                    if self._wanted is turn:
                        self._wanted = None
                    return not turn.begun
            except BaseException as error:  # noqa: BLE001  # first this must be known
                turn.struck = error

    def _run(self) -> None:
        while True:
            self._call.acquire()
            if self._stopped:
                break
            fcntl.flock(self.fd, fcntl.LOCK_EX)
            with self._mutex:
                turn, self._wanted = self._wanted, None
                self._queued = False
                if turn is not None:
                    turn.begun = True
            if turn is None or turn.work is not None:
                if turn is not None:
                    _do(turn)
                fcntl.flock(self.fd, fcntl.LOCK_UN)
            if turn is not None:
                turn.ends()
        os.close(self.fd)

    def stop(self) -> None:
        self._stopped = True
        with suppress(RuntimeError):  # it was called already and has not looked yet
            self._call.release()


def _do(turn: _Turn) -> None:
    assert turn.work is not None
    try:
        turn.work()
    except BaseException as error:  # noqa: BLE001  # it belongs to whoever asked
        turn.error = error


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
