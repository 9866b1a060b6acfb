"""Reading files that another user may have put there: regular files only, and nothing that would wait.

A FIFO named `.git` would hold every command up permanently, a device may never end. O_NONBLOCK opens both at once, and
`fstat` tells what was opened.
"""

from __future__ import annotations

import os
import stat
from errno import EINVAL, ELOOP, EMLINK


def read(path: str, size: int, *, follow: bool = True) -> bytes:
    """The first `size` bytes of a regular file. Raises OSError; also for a link, unless `follow`.

    The directory may be reached through links: only the file itself is judged.
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
