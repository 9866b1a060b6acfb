"""The daemon's current state, in a file that any process can read.

The daemon replaces this small file in the data directory at each change. The store has the same facts, but this file
can be read while the store cannot. The file stays when the daemon dies, so readers also check the lock and the
identity.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast.daemon import instance

if TYPE_CHECKING:
    from standfast.clock import Clock

NAME = "status.json"
MAX_BYTES = 1024 * 1024
READS = 3


class Status(NamedTuple):
    """The daemon of this data directory."""

    state: str
    """stopped, starting, active, standby, waiting (for the store) or draining."""
    pid: int | None
    process: str | None
    store: str | None
    version: str | None
    since_us: int | None
    leader: str | None
    """The machine or process that fires and runs loops on this store, if it is not this one."""
    parts: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    """The runs that are in progress."""
    counts: dict[str, int]
    note: str | None = None
    """The reason why the daemon ended, or the error of the store for which it waits."""
    foreign: Sequence[dict[str, str]] = ()
    """Loops that are late and that this daemon may not run: loop, why, what to do."""


def path_of(data_dir: str) -> str:
    return os.path.join(data_dir, "daemon", NAME)


def write(data_dir: str, status: Status) -> None:
    """Replace the file. On a full disk, overwrite the old file, which already has its space."""
    path, data = path_of(data_dir), json.dumps(status._asdict()).encode()
    try:
        _put(path + ".new", data, os.O_CREAT | os.O_TRUNC)
        os.rename(path + ".new", path)
    except OSError:
        with suppress(OSError):  # the file is only for display; the store has the rows
            _put(path, data, 0)


def _put(path: str, data: bytes, flags: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    with open(fd, "wb", buffering=0) as file:
        file.write(data)
        file.truncate(len(data))


def read(data_dir: str, clock: Clock) -> Status:
    """The state of the daemon. Raises UnsafeStorage if its pid file is a link."""
    found = instance.find(data_dir, clock)
    written = _written(data_dir)
    if not found.running:
        base = written or _NOTHING
        return base._replace(state="stopped", pid=None, process=None, leader=None, parts=[], runs=[], foreign=())
    if written is None or (found.process is not None and written.process != found.process):
        return _NOTHING._replace(state="starting", pid=found.pid, process=found.process)
    return written._replace(pid=found.pid)


_NOTHING = Status("stopped", None, None, None, None, None, None, [], [], {})


def _written(data_dir: str) -> Status | None:
    for _ in range(READS):
        try:
            with open(path_of(data_dir), "rb") as file:
                return Status(**json.loads(file.read(MAX_BYTES)))
        except ValueError:
            time.sleep(0.01)  # another process is replacing it
        except (OSError, TypeError):
            break
    return None
