"""inotify: the kernel reports changes of a file. Linux only, and imported on use."""

from __future__ import annotations

import os

ACCESSED = 0x1
"""The file was read."""


def watch(path: str, events: int) -> int:
    """A descriptor that becomes readable when one of `events` happens to the file. Raises OSError."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0 or libc.inotify_add_watch(fd, os.fsencode(path), events) < 0:
        code = ctypes.get_errno()
        if fd >= 0:
            os.close(fd)
        raise OSError(code, os.strerror(code), path)
    return fd


def drain(fd: int) -> None:
    """Read pending events and drop them."""
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass
