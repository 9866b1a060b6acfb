"""Writes and blocking work under an event loop.

`submitted` hands a write to the engine, and no thread waits for the answer. `on_thread` runs a blocking function on a
worker thread, which awaits coroutines on the caller's loop.

A cancelled caller leaves once the outcome is known. It withdraws a write that has not begun, and cancels the coroutine
that its worker thread waits for. Neither a write that has begun nor a worker thread is stopped.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from standfast.core import user_code
from standfast.db import contract
from standfast.db.contract import Tx
from standfast.db.store import Store, raised
from standfast.errors import StandfastError

T = TypeVar("T")

AGAIN_S = 0.1
"""How often a write that could not be withdrawn is tried again. The engine may have put it back into its queue, because
another program has locked the database."""
THREADS_MAX = 1000
"""Awaited calls that one process runs at the same time. A step that calls an effect needs two."""


async def on_thread(function: Callable[..., T], *args: Any) -> T:
    """The result of `function(*args)`, run on a worker thread in a copy of the caller's context."""
    loop = asyncio.get_running_loop()
    bridge = _Bridge(loop)
    # The caller's context goes along: an effect inside the body of an effect is refused there, too.
    context = contextvars.copy_context()
    call = functools.partial(context.run, user_code.with_bridge, bridge, functools.partial(function, *args))
    outcome: T = await _outcome(loop.run_in_executor(_threads(), call), bridge.cancel)
    return outcome


async def submitted(store: Store, body: Callable[[Tx], T | StandfastError]) -> T:
    """The result of a write. Raises Busy if the write has not begun within DEADLINE_S."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T | StandfastError] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def done(result: Any, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, result, error)

    withdraw = store.submit(body, done)

    def withdrawn(then: Callable[[], object]) -> None:
        if withdraw():
            then()
        elif not future.done():
            loop.call_later(AGAIN_S, withdrawn, then)

    overdue = functools.partial(withdrawn, lambda: settle(None, store.engine.overdue()))
    deadline = loop.call_later(contract.DEADLINE_S, overdue)
    try:
        return raised(await _outcome(future, lambda: withdrawn(future.cancel)))
    finally:
        deadline.cancel()


async def _outcome(future: asyncio.Future[T], stop: Callable[[], object]) -> T:
    """The result of `future`. A cancelled caller calls `stop` and waits until `future` is done."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop()
        while not future.done():
            with suppress(asyncio.CancelledError):  # cancelled again
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # read here, so that asyncio does not warn about it
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
