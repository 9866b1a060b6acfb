"""Waiting for a commit of another process: by inotify, by the mtime of a file, and by polling."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from standfast.db.contract import Watch
from standfast.db.sqlite import inotify, notify

LONG_S = 60.0


def rung_by_time(bell: notify.Bell) -> None:
    """Notify by mtime, as on systems without inotify: 1 s later."""
    found = os.stat(bell.path)
    os.utime(bell.path, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000_000))


@pytest.mark.parametrize(
    ("made", "ring"), [(notify.watch, notify.Bell.ring), (notify._Poll, rung_by_time)], ids=["inotify", "time"]
)
def test_a_watch_hears_each_ring_once(
    tmp_path: Path, made: Callable[[str], Watch], ring: Callable[[notify.Bell], None]
) -> None:
    """Only a commit wakes a waiter."""
    bell = notify.Bell(str(tmp_path / "bell"))
    watch = made(bell.path)
    try:
        assert not watch.wait(0)
        ring(bell)
        assert watch.wait(LONG_S)
        assert not watch.wait(0)
    finally:
        watch.close()
        watch.close()  # a second call does nothing
        bell.close()


def test_without_a_watch_of_the_kernel_a_waiting_caller_polls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str, mask: int) -> int:
        raise OSError(errno.ENOSPC, "no more watches")

    monkeypatch.setattr(inotify, "watch", refused)
    watch = notify.watch(str(tmp_path / "bell"))
    assert not watch.wait(0)
    assert watch.wait(LONG_S)  # well before its timeout: the caller reads the store again
    watch.close()
