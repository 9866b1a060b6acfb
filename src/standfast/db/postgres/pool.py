"""Connections, lent to one transaction at a time; the one used last is lent first.

Made in the caller's thread and only when one is needed: a refused password is the caller's
error at once, a command of the shell starts no thread, and a fork finds nothing running.
(`psycopg_pool` connects in threads of its own and tells the caller only that time is up.)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from standfast.db.postgres.faults import FULL_HOUSE, Fault
from standfast.db.postgres.wire import Wire

CONNECTIONS_MAX = 10
IDLE_MAX_S = 300.0
AGE_MAX_S = 3600.0
"""A connection is renewed now and then, so that a new address of the server is noticed."""


class Pool:
    def __init__(self, connect: Callable[[], Wire]) -> None:
        self._connect = connect
        self._mutex = threading.Lock()
        self._back = threading.Condition(self._mutex)
        self._idle: list[tuple[float, Wire]] = []
        self._open = 0
        self._waiting = 0
        self._closed = False
        self._epoch = 0

    def take(self, timeout_s: float) -> Wire:
        """A connection for this thread alone; raises Fault if none can be had."""
        with self._back:
            self._waiting += 1
            try:
                free = self._back.wait_for(self._can_lend, max(timeout_s, 0))
            finally:
                self._waiting -= 1
            if not free:
                words = f"all {CONNECTIONS_MAX} connections of this process are in use"
                raise Fault(words, sqlstate=FULL_HOUSE)
            if self._closed:
                raise Fault("this engine is closed", final=True)
            old = self._drop_old()
            wire = self._idle.pop()[1] if self._idle else None
            if wire is None:
                self._open += 1
        _close(old)
        return wire or self._new()

    def _can_lend(self) -> bool:
        return bool(self._idle) or self._open < CONNECTIONS_MAX or self._closed

    def _new(self) -> Wire:
        epoch = self._epoch
        try:
            wire = self._connect()
            wire.epoch = epoch
            return wire
        except BaseException:
            with self._back:
                self._open -= 1
                self._back.notify()
            raise

    def give(self, wire: Wire) -> None:
        """Back from its borrower: kept if it is sound, closed otherwise."""
        now = time.monotonic()
        with self._back:
            sound = not (wire.broken or self._closed or now - wire.born > AGE_MAX_S or wire.epoch != self._epoch)
            if sound:
                self._idle.append((now, wire))
            else:
                self._open -= 1
            self._back.notify()
        if not sound:
            wire.close()

    def renew(self) -> None:
        """Something happened to the server: no connection made before now is lent again."""
        with self._back:
            self._epoch += 1
            idle, self._idle = [wire for _, wire in self._idle], []
            self._open -= len(idle)
            self._back.notify_all()
        _close(idle)

    def close(self) -> None:
        with self._back:
            self._closed = True
        self.renew()

    def use(self) -> dict[str, int]:
        with self._mutex:
            return {"open": self._open, "idle": len(self._idle), "waiting": self._waiting, "max": CONNECTIONS_MAX}

    def _drop_old(self) -> list[Wire]:
        """Those nobody needed for long are at the bottom."""
        limit = time.monotonic() - IDLE_MAX_S
        count = sum(1 for since, _ in self._idle if since < limit)
        old = [wire for _, wire in self._idle[:count]]
        del self._idle[:count]
        self._open -= count
        return old


def _close(wires: list[Wire]) -> None:
    for wire in wires:
        wire.close()
