"""Waking calls that wait: one thread watches the store for all of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio

from standfast.db.store import Store
from standfast.errors import StandfastError

LOOK_S = 0.25
"""How soon the thread notices that no caller waits."""
APART_S = 0.1
"""Between two wake-ups: each lets every waiting call read once."""


class Changes:
    """`next()` is set after the next commit, of this process or another."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._mutex = threading.Lock()
        self._waiting = 0
        self._running = False
        self._next = anyio.Event()

    def next(self) -> anyio.Event:
        return self._next

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The thread runs while at least one call is inside this block."""
        with self._mutex:
            self._waiting += 1
            if not self._running:
                loop = asyncio.get_running_loop()
                threading.Thread(target=self._run, args=(loop,), name="standfast-changes", daemon=True).start()
                self._running = True
        try:
            yield
        finally:
            with self._mutex:
                self._waiting -= 1

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(StandfastError, RuntimeError), self._store.watch() as watch:  # RuntimeError: the loop has ended
            while True:
                woken = watch.wait(LOOK_S)
                with self._mutex:
                    if not self._waiting:
                        self._running = False
                        return
                if woken:
                    loop.call_soon_threadsafe(self._wake)
                    time.sleep(APART_S)
        with self._mutex:
            self._running = False  # waiting calls look again by themselves; the next one starts another thread

    def _wake(self) -> None:
        event, self._next = self._next, anyio.Event()
        event.set()
