"""How a saver and a store are opened and closed, and the threads on which they wait."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Self, TypeVar

from standfast import config, handle
from standfast.errors import Conflict

THREADS_MAX = 64
"""Calls under way at once in one saver; more wait for a thread."""
WAIT_MAX_S = 10.0
"""How long a write waits for the beginning of its thread, which is on its way in this process."""

T = TypeVar("T")
A = TypeVar("A", bound="Opened")


class _Nothing:
    """Done already; may be awaited."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


class Opened:
    """What a saver and a store have in common: how they are opened and closed."""

    _shared: Shared

    @classmethod
    def from_conn_string(cls: type[A], conn_string: str | os.PathLike[str] | None = None, **options: Any) -> Opening[A]:
        """`with` or `async with`: on a path or postgresql:// address, closed at the end of the block.

        `pipeline` and `pool_config`, which the official classes take, are left aside: there is one pool, and it
        is pipelined.
        """
        options = {name: value for name, value in options.items() if name not in ("pipeline", "pool_config")}
        return Opening(lambda: cls(conn_string, **options))  # type: ignore[call-arg]  # each has its own options

    def setup(self) -> _Nothing:
        """Nothing to do: the schema is made when the store is opened. Await it or not."""
        return _Nothing()

    def close(self) -> None:
        """Wait for running calls, and close the store; one that was open already stays open."""
        self._shared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def sf(self) -> handle.Standfast:
        """The store beneath: its other resources are in the same file."""
        return self._shared.sf


class Opening(Generic[A]):
    """Opened by entering, closed by leaving; `with` and `async with` alike."""

    def __init__(self, make: Callable[[], A]) -> None:
        self._make = make
        self._made: A | None = None

    def __enter__(self) -> A:
        self._made = self._make()
        return self._made

    def __exit__(self, *exc: object) -> None:
        if self._made is not None:
            self._made.close()

    async def __aenter__(self) -> A:
        self._made = await asyncio.to_thread(self._make)
        return self._made

    async def __aexit__(self, *exc: object) -> None:
        if self._made is not None:
            await asyncio.to_thread(self._made.close)


class Shared:
    """What a saver and its shallow copies have in common: the open store, its threads, and the call that is
    starting."""

    def __init__(self, where: handle.Standfast | str | os.PathLike[str] | None) -> None:
        self._own = not isinstance(where, handle.Standfast)
        if isinstance(where, handle.Standfast):
            self.sf = where
        else:
            self.sf = handle.connect(config.load(where))
        self._threads: ThreadPoolExecutor | None = None
        self._mutex = threading.Lock()
        self._beginnings: dict[str, int] = {}

    def close(self) -> None:
        with self._mutex:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=True)
        if self._own:
            self.sf.close()

    async def run(self, act: Callable[[], T]) -> T:
        """On a worker thread. A cancelled caller does not stop a running call, and nothing is left open."""
        with self._mutex:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="standfast-langgraph")
            running = self._threads.submit(act)
        return await asyncio.wrap_future(running)

    def beginning(self, thread: str, begins: bool) -> _Beginning:
        return _Beginning(self, thread, begins)

    def after_beginning(self, thread: str, act: Callable[[], Any], *, own: bool = False) -> None:
        """Tasks may be faster than the first checkpoint of their thread: of one that was deleted, they wait for it."""
        end = time.monotonic() + WAIT_MAX_S
        while True:
            with self._mutex:
                on_its_way = not own and bool(self._beginnings.get(thread))
            try:
                act()
                return
            except Conflict as error:
                if error.code != "thread_deleted" or not on_its_way or time.monotonic() > end:
                    raise
            time.sleep(0.002)


class _Beginning:
    """The block in which a thread's first checkpoint is in flight."""

    def __init__(self, shared: Shared, thread: str, begins: bool) -> None:
        self._shared = shared
        self._thread = thread
        self._step = int(begins)

    def __enter__(self) -> None:
        self._count(self._step)

    def __exit__(self, *exc: object) -> None:
        self._count(-self._step)

    def _count(self, step: int) -> None:
        if step:
            counts = self._shared._beginnings
            with self._shared._mutex:
                counts[self._thread] = counts.get(self._thread, 0) + step
                if not counts[self._thread]:
                    del counts[self._thread]
