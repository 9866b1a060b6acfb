"""Runs from claim to end, and those a dead daemon left behind.

    claim ─▶ keeper started, waiting ─▶ started (the row names the keeper) ─▶ go ─▶ result ─▶ finish

Each arrow may be the last thing this process did. The next daemon reads the rows and the places of the
keepers, and goes on from there (`children` says what it may find). Nothing is begun twice: before
`started` is recorded the keeper has been told nothing, and after it the keeper is found by its identity.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from standfast import crash
from standfast.clock import SECOND_US
from standfast.daemon.children import Child, Result, Spool
from standfast.errors import Conflict, NotFound
from standfast.footings.leases import is_gone

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.loops.nouns import Job, Run

LOOK_EVERY_US = 10 * SECOND_US
TIDY_US = 2 * SECOND_US
TERM_GRACE_S = 10.0
"""Between SIGTERM and SIGKILL, for a command that has to end."""
PAGE = 1000

_OURS_ALONE = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "STANDFAST_CRASH_AT")


class Work:
    """What this daemon runs."""

    def __init__(self, sf: Standfast, spool: Spool, workers_max: int, counts: dict[str, int], say: Callable[[str], None]):
        self._sf = sf
        self._spool = spool
        self._workers_max = workers_max
        self._counts = counts
        self._say = say
        self._clock = sf._store.caller.clock
        self._host = os.uname().nodename
        self._children: dict[tuple[str, int], tuple[Run, Child]] = {}
        self._looked_us: int | None = None
        self.draining = False

    # -- what the service asks --------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Nothing runs here, and every end is recorded."""
        return not self._children

    @property
    def quiet(self) -> bool:
        """Nothing runs here; an end may still have to be recorded."""
        return not any(child.here for _, child in self._children.values())

    def end_all(self) -> None:
        """Every command is asked to end; asked again, it is killed."""
        for _, child in self._children.values():
            child.end()

    def shown(self) -> list[dict[str, Any]]:
        return [
            {"run": run.id, "loop": run.loop, "slot_us": run.slot_us, "attempt": run.attempt, "pid": child.pid}
            for run, child in self._children.values()
        ]

    # -- one step ---------------------------------------------------------------------------------

    def step(self) -> int:
        now_us = self._clock.mono_us()
        if self._looked_us is None or now_us - self._looked_us >= LOOK_EVERY_US:
            self._take_over()
            self._looked_us = now_us
        self.reap()
        self._cancel()
        if not self.draining:
            self._claim()
        return TIDY_US if self._children else LOOK_EVERY_US
