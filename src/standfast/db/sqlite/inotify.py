"""The kernel tells what happens to a file: Linux only, and nothing of it is imported before it is asked for."""

from __future__ import annotations

import os

ACCESSED = 0x1
"""It was read."""


def told_of(path: str, what: int) -> int:
    """A descriptor that has something to read whenever one of these happens to a file. Raises OSError."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0 or libc.inotify_add_watch(fd, os.fsencode(path), what) < 0:
        code = ctypes.get_errno()
        if fd >= 0:
            os.close(fd)
        raise OSError(code, os.strerror(code), path)
    return fd


def drain(fd: int) -> None:
    """Take what was told; it is no news any more."""
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass
