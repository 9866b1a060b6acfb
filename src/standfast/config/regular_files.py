"""Read files that another user may have created: only regular files, without blocking.

Reading a FIFO named `.git` would block every command, and a device may have no end. O_NONBLOCK opens both without
waiting, and `fstat` shows the type of the opened file.
"""

from __future__ import annotations

import os
import stat
from errno import EINVAL, ELOOP, EMLINK


def read(path: str, size: int, *, follow: bool = True) -> bytes:
    """The first `size` bytes of a regular file. Raises OSError, also for a symbolic link unless `follow` is set.

    The path of its directory may contain links.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        fd = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except OSError as error:
        if not follow and error.errno in (ELOOP, EMLINK):
            raise OSError(error.errno, "it is a symbolic link", path) from None
        if os.path.exists(path) and not os.path.isfile(path):
            raise OSError(EINVAL, "it is not a regular file", path) from None
        raise
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(EINVAL, "it is not a regular file", path)
        return file.read(size)
