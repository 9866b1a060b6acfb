"""Open and close a saver and a store, and run their awaited calls on worker threads."""

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
"""Awaited calls that one saver runs at the same time; further calls wait for a thread."""
WAIT_MAX_S = 10.0
"""How long a write waits for the first checkpoint of its thread, which this process is storing."""

T = TypeVar("T")
A = TypeVar("A", bound="Opened")


class _Nothing:
    """A result that may be awaited and is there already."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


class Opened:
    """Opening and closing, shared by the saver and the store."""

    _shared: Shared

    @classmethod
    def from_conn_string(cls: type[A], conn_string: str | os.PathLike[str] | None = None, **options: Any) -> Opening[A]:
        """Open a path or postgresql:// address for a `with` or `async with` block, and close it at the end.

        `pipeline` and `pool_config` of the official classes are ignored: standfast has one pool, which pipelines.
        """
        options = {name: value for name, value in options.items() if name not in ("pipeline", "pool_config")}
        return Opening(lambda: cls(conn_string, **options))  # type: ignore[call-arg]  # each has its own options

    def setup(self) -> _Nothing:
        """Does nothing: opening the store creates the schema. The result may be awaited."""
        return _Nothing()

    def close(self) -> None:
        """Wait for running calls, then close the store. A handle that the caller opened stays open."""
        self._shared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def sf(self) -> handle.Standfast:
        """The handle of the store, for its other resources."""
        return self._shared.sf


class Opening(Generic[A]):
    """A context manager that opens on entry and closes on exit, for `with` and `async with`."""

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
    """The state that a saver shares with its shallow copies: the open store, its worker threads, and the threads
    whose first checkpoint is being stored."""

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
        """Run `act` on a worker thread. If the caller is cancelled, a running call still ends by itself."""
        with self._mutex:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="standfast-langgraph")
            running = self._threads.submit(act)
        return await asyncio.wrap_future(running)

    def beginning(self, thread: str, begins: bool) -> _Beginning:
        return _Beginning(self, thread, begins)

    def after_beginning(self, thread: str, act: Callable[[], Any], *, own: bool = False) -> None:
        """Run `act`. If the thread was deleted and its new first checkpoint is being stored, wait for that checkpoint.

        LangGraph stores the writes of tasks concurrently, so they may come before the checkpoint.
        """
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
    """The block in which the first checkpoint of a thread is being stored."""

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
