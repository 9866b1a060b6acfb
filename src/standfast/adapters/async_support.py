"""Shared by the async adapters: a store from any accepted argument, and writes that always wait for their outcome."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from standfast import modules
from standfast.db.contract import Tx
from standfast.db.store import Store, raised
from standfast.errors import InvalidInput, StandfastError

if TYPE_CHECKING:
    from standfast.aio import AsyncStandfast
    from standfast.handle import Standfast

T = TypeVar("T")


def missing(extra: str, package: str) -> ImportError:
    """The message if an adapter's framework is not installed."""
    return ImportError(f"this adapter needs {package}, which is not installed\n{modules.install(extra)}")


def opened(store: Standfast | AsyncStandfast | str | os.PathLike[str] | None) -> tuple[Standfast, bool]:
    """The open store that was given, or one opened here; and whether it is ours to close."""
    from standfast.aio import AsyncStandfast
    from standfast.handle import Standfast, open

    if isinstance(store, Standfast):
        return store, False
    if isinstance(store, AsyncStandfast):
        sync = store.sync
        assert isinstance(sync, Standfast)
        return sync, False
    if store is None or isinstance(store, (str, os.PathLike)):
        return open(store), True
    raise InvalidInput(
        f"a store is a path, a URL or an open store, not {type(store).__name__}", 'Session("fix-42", standfast.open())'
    )


async def submitted(store: Store, body: Callable[[Tx], T | StandfastError]) -> T:
    """Write on the engine's thread. A caller that is cancelled meanwhile leaves once the outcome is known."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def done(result: Any, error: BaseException | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    store.submit(body, done)
    outcome: T | StandfastError = await _outcome(future)
    return raised(outcome)


async def threaded(function: Callable[..., T], *args: Any) -> T:
    """Run it on a worker thread. A caller that is cancelled meanwhile leaves once it has ended."""
    loop = asyncio.get_running_loop()
    future = loop.run_in_executor(None, functools.partial(function, *args))
    outcome: T = await _outcome(future)
    return outcome


async def _outcome(future: asyncio.Future[Any]) -> Any:
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:  # asked again and again until the write has ended
            cancelled = cancelled or error
    if cancelled is None:
        return future.result()
    future.exception()  # seen, so that asyncio does not warn about it
    raise cancelled
