"""End the daemon from another process. The signal never reaches a process that reuses its pid."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from standfast.core.leases import is_here
from standfast.daemon import instance, unit
from standfast.errors import Busy, Conflict, NotFound

if TYPE_CHECKING:
    from standfast.clock import Clock

LOOK_S = 0.02


def stop(data_dir: str, found: instance.Found, clock: Clock, *, now: bool, patience_s: float) -> None:
    """Signal the daemon and wait until its lock is free. With `now`, signal it twice, so that it kills its commands.

    Raises Busy if it is still there after `patience_s`.
    """
    if found.pid is None or found.process is None:
        raise NotFound("the daemon of this data directory cannot be seen from here", "stop it where it was started")
    if _run_by_systemd(found.pid):
        raise Conflict("systemd runs this daemon and would start it again", "systemctl --user stop standfast")
    # Open the descriptor first, then compare the identity, so that a process with a reused pid never gets the signal.
    fd = os.pidfd_open(found.pid) if hasattr(os, "pidfd_open") else -1
    try:
        if not is_here(found.process, clock):
            return
        # Two different signals: the kernel may deliver one signal once although it was sent twice.
        for number in (signal.SIGTERM, signal.SIGINT) if now else (signal.SIGTERM,):
            if fd >= 0:
                signal.pidfd_send_signal(fd, number)
            else:
                os.kill(found.pid, number)
    finally:
        if fd >= 0:
            os.close(fd)
    end = time.monotonic() + patience_s
    while _still(data_dir, found, clock):
        if time.monotonic() > end:
            raise Busy(
                f"the daemon (process {found.pid}) still waits for what it runs",
                "end it now: standfast daemon stop --now",
            )
        time.sleep(LOOK_S)


def _still(data_dir: str, found: instance.Found, clock: Clock) -> bool:
    there = instance.find(data_dir, clock)
    return there.running and there.process == found.process


def _run_by_systemd(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            return unit.NAME in file.read(10_000)
    except OSError:
        return False
