"""Blocking work under an event loop: it runs on a worker thread and awaits coroutines on the loop it came from.

A cancelled caller does not stop the thread. It cancels the coroutine that the thread waits for, and leaves once the
thread has recorded what happened.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from standfast.core import user_code

THREADS_MAX = 1000
"""Awaited calls under way at once in one process. A step that calls an effect needs two."""


async def on_thread(function: Callable[[], Any]) -> Any:
    """The result of `function`, run on a worker thread in a copy of the caller's context."""
    loop = asyncio.get_running_loop()
    bridge = _Bridge(loop)
    # The caller's context goes along: an effect inside the body of an effect is refused there, too.
    context = contextvars.copy_context()
    future = loop.run_in_executor(_threads(), context.run, user_code.with_bridge, bridge, function)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        bridge.cancel()
        await asyncio.wait([future])  # until the thread has recorded what happened
        if not future.cancelled():
            future.exception()
        raise


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="standfast-calls")


os.register_at_fork(after_in_child=_threads.cache_clear)


class _Bridge:
    """Awaits, on the caller's loop, what foreign code returned on a worker thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._mutex = threading.Lock()
        self._cancelled = False
        self._current: Any = None

    def __call__(self, awaitable: Awaitable[Any]) -> Any:
        with self._mutex:
            future = asyncio.run_coroutine_threadsafe(_awaiting(awaitable), self._loop)
            self._current = future
            if self._cancelled:
                future.cancel()
        try:
            return future.result()
        except BaseException as error:
            # The thread's own kind of cancellation, as a coroutine would have seen it.
            if type(error).__name__ == "CancelledError":
                raise asyncio.CancelledError from error
            raise

    def cancel(self) -> None:
        with self._mutex:
            self._cancelled = True
            if self._current is not None:
                self._current.cancel()


async def _awaiting(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
