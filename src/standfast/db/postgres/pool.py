"""Connections, lent to one transaction at a time; the one used last is lent first.

The caller's thread opens a connection only when it needs one. So the caller gets the error of a refused password at
once, a shell command starts no thread, and a fork copies no running thread.
(`psycopg_pool` connects in its own threads, and the caller gets only a timeout.)

An exception may hit a caller at any bytecode, so there is no count that a caller has to correct and no
condition variable (its lock is taken by Python code, and could stay taken). A caller holds a `Permit`, of which
there are ten. If a caller loses its permit, the permit is collected as garbage, and a waiting caller makes a new one.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from standfast.db.postgres.faults import FULL_HOUSE, Fault
from standfast.db.postgres.wire import Wire

CONNECTIONS_MAX = 10
IDLE_MAX_S = 300.0
AGE_MAX_S = 3600.0
"""The age at which a connection is replaced, so that we notice a new address of the server."""
LOOK_S = 0.1
"""How often a caller that waits for a permit looks for permits that were lost."""


class Permit:
    """The right to one connection, and the connection while it is lent."""

    __slots__ = ("__weakref__", "_pid", "wire")

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.wire: Wire | None = None

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        wire = getattr(self, "wire", None)  # unset if Ctrl-C hit `__init__`
        if wire is not None and getpid() == self._pid:  # the parent's connection is not ours to end
            wire.close()


class Pool:
    def __init__(self, connect: Callable[[], Wire]) -> None:
        self._connect = connect
        permits = [Permit() for _ in range(CONNECTIONS_MAX)]
        self._free: queue.SimpleQueue[Permit] = queue.SimpleQueue()
        self._permits = [weakref.ref(permit) for permit in permits]
        self._looking = threading.Lock()
        self._idle: deque[tuple[float, Wire]] = deque()
        self._waiting: set[int] = set()
        self._closed = False
        self._epoch = 0
        for permit in permits:
            self._free.put(permit)

    def take(self, timeout_s: float) -> Permit:
        """Lend a connection to this thread, in a permit. Raises Fault if none is free within the timeout."""
        permit = self._free_permit(timeout_s)
        try:
            if self._closed:
                raise Fault("this engine is closed", final=True)
            self._close_old()
            permit.wire = self._newest() or self._new()
        except BaseException:
            self._free.put(permit)
            raise
        return permit

    def _free_permit(self, timeout_s: float) -> Permit:
        try:
            return self._free.get_nowait()
        except queue.Empty:
            pass
        self._waiting.add(threading.get_ident())
        try:
            return self._wait_for_permit(time.monotonic() + max(timeout_s, 0))
        finally:
            self._waiting.discard(threading.get_ident())

    def _wait_for_permit(self, end: float) -> Permit:
        while True:
            self._replace_lost()
            left_s = end - time.monotonic()
            try:
                return self._free.get(timeout=max(0.0, min(left_s, LOOK_S)))
            except queue.Empty:
                if left_s <= LOOK_S:
                    words = f"all {CONNECTIONS_MAX} connections of this process are in use"
                    raise Fault(words, sqlstate=FULL_HOUSE) from None

    def _replace_lost(self) -> None:
        with self._looking:
            for n, known in enumerate(self._permits):
                if known() is None:
                    permit = Permit()
                    self._permits[n] = weakref.ref(permit)
                    self._free.put(permit)

    def _newest(self) -> Wire | None:
        try:
            return self._idle.pop()[1]
        except IndexError:
            return None

    def _new(self) -> Wire:
        epoch = self._epoch
        wire = self._connect()
        wire.epoch = epoch
        return wire

    def give(self, permit: Permit) -> None:
        """Return a permit. Its connection is kept if it is reusable, and closed otherwise."""
        now, wire = time.monotonic(), permit.wire
        if wire is not None:
            permit.wire = None
            if self._closed or not wire.reusable or now - wire.born > AGE_MAX_S or wire.epoch != self._epoch:
                wire.close()
            else:
                self._idle.append((now, wire))
        self._free.put(permit)

    def renew(self) -> None:
        """After the server failed or restarted: close every connection that was opened before now."""
        self._epoch += 1
        while (wire := self._newest()) is not None:
            wire.close()

    def close(self) -> None:
        self._closed = True
        self.renew()

    def use(self) -> dict[str, int]:
        idle, lent = len(self._idle), CONNECTIONS_MAX - self._free.qsize()
        return {"open": idle + lent, "idle": idle, "waiting": len(self._waiting), "max": CONNECTIONS_MAX}

    def _close_old(self) -> None:
        """Close connections that were unused for too long. The longest unused ones are at the left end."""
        limit = time.monotonic() - IDLE_MAX_S
        try:
            while self._idle[0][0] < limit:
                self._idle.popleft()[1].close()
        except IndexError:
            return
