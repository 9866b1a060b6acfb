"""A notification file beside the database. Each commit touches it, and waiting processes watch it.

The file has one byte. On Linux a notification reads the byte, which causes no write to disk, and a waiter sleeps in
inotify. On other systems a notification rewrites the byte, and a waiter polls the file's time. It is only a hint: a
waiter reads the store after it wakes, and after its timeout anyway. Waiters cannot watch the WAL instead, because it
changes before a commit is visible.
"""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import suppress

from standfast.db.contract import Watch
from standfast.db.sqlite import inotify

_LINUX = sys.platform == "linux"
_POLL_S = 0.015
_LOOK_AGAIN_S = 0.1
_pread = os.pread


class Bell:
    """The sending side: one descriptor per engine."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with suppress(OSError):
            os.pwrite(self._fd, b"!", 0)

    def ring(self) -> None:
        # A full disk must not turn a durable commit into an error. Waiters poll anyway.
        try:  # `suppress` would be three calls more for each commit
            if _LINUX:
                _pread(self._fd, 1, 0)
            else:
                os.pwrite(self._fd, b"!", 0)
        except OSError:
            pass

    def close(self) -> None:
        os.close(self._fd)


def watch(path: str) -> Watch:
    """Wait for a notification, by inotify or by polling."""
    if not _LINUX:
        return _Poll(path)
    try:
        return _Inotify(path)
    except OSError:
        return _PollOnly()


class _Inotify(Watch):
    def __init__(self, path: str) -> None:
        self._fd = inotify.watch(path, inotify.ACCESSED)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def wait(self, timeout_s: float) -> bool:
        if not self._poll.poll(max(timeout_s, 0) * 1000):
            return False
        inotify.drain(self._fd)
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _PollOnly(Watch):
    """This user has no inotify watch left: poll."""

    def wait(self, timeout_s: float) -> bool:
        time.sleep(min(max(timeout_s, 0), _LOOK_AGAIN_S))
        return timeout_s > 0

    def close(self) -> None:
        return None


class _Poll(Watch):
    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = self._stamp()

    def _stamp(self) -> int:
        return os.stat(self._path).st_mtime_ns

    def wait(self, timeout_s: float) -> bool:
        end = time.monotonic() + timeout_s
        while (stamp := self._stamp()) == self._seen:
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(_POLL_S, left))
        self._seen = stamp
        return True

    def close(self) -> None:
        return None
