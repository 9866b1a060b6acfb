"""The same names, awaited.

    async with standfast.aopen() as sf:
        async with sf.session("fix-42") as s:
            pr = await s.effect(open_pr, repo="a/b", branch="fix-42")

One implementation stands beneath: a verb is handed to the engine, which answers on the event
loop once it is on disk; whatever calls foreign code (steps, effects) runs on a worker thread
and awaits coroutines on the loop it was called from. A cancelled task withdraws a write that has not begun,
and does not stop one that has; a cancelled `do` leaves its effect in doubt.

Each call is a coroutine: `asyncio.create_task(sf.tasks.add("x"))` works, and Python warns of one that is never
awaited. What may also be entered or iterated (sessions, locks, `follow`) is a `_Call` around such a coroutine.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self

from standfast.db.contract import Tx, Wake
from standfast.db.store import Room, Store, raised
from standfast.footings import foreign

THREADS_MAX = 64
"""Steps and effects under way at once in one handle; more wait for a thread."""
WAIT_S = 0.25
"""How long a worker thread waits for the next event before it looks whether anybody still listens."""


class Handle(Protocol):
    """What this facade needs of the handle it stands on."""

    def transaction(self) -> AbstractContextManager[Any]: ...

    def close(self) -> None: ...


class AsyncStandfast:
    """An open store whose verbs are awaited."""

    def __init__(self, connect: Callable[[], Handle]) -> None:
        self._connect = connect
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="standfast-aio")
        self._sync: Handle | None = None

    async def __aenter__(self) -> Self:
        self._sync = await self._run(self._connect)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        sync, self._sync = self._sync, None
        if sync is not None:
            await self._run(sync.close)
        self._threads.shutdown(wait=False)

    @property
    def sync(self) -> Handle:
        """The handle beneath: for what needs no waiting."""
        assert self._sync is not None, "open it first: async with standfast.aopen() as sf"
        return self._sync

    async def transaction(self, body: Callable[[Any], Any]) -> Any:
        """Run a plain function of a transaction: everything in it is committed together, or not at all."""

        def run() -> Any:
            with self.sync.transaction() as tx:
                return body(tx)

        return await self._run(run)

    def __getattr__(self, name: str) -> Any:
        return self._awaited(getattr(self.sync, name))

    def _awaited(self, value: Any) -> Any:
        if isinstance(value, Room):
            return AsyncObject(self, value)
        return _Method(self, value) if callable(value) else value

    async def _run(self, function: Callable[[], Any]) -> Any:
        """On a worker thread; a cancelled caller does not stop it, but cancels the coroutine it waits for."""
        loop = asyncio.get_running_loop()
        bridge = _Bridge(loop)
        # The caller's context goes along: an effect inside the body of an effect is refused there, too.
        context = contextvars.copy_context()
        future = loop.run_in_executor(self._threads, context.run, foreign.with_bridge, bridge, function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            bridge.cancel()
            # The thread records what happened; nobody may see the store half told.
            await asyncio.wait([future])
            if not future.cancelled():
                future.exception()
            raise


class _Method:
    """A method of the synchronous object, to be awaited or entered; made at each use, so it is light."""

    __slots__ = ("__wrapped__", "_owner")

    def __init__(self, owner: AsyncStandfast, method: Callable[..., Any]) -> None:
        self._owner = owner
        self.__wrapped__ = method

    def __call__(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        method = self.__wrapped__
        room, body = getattr(method, "__self__", None), getattr(method, "body", None)
        if body is not None and isinstance(room, Room) and room.tx is None:
            return _named(_verb(self._owner, room, body, args, kwargs), method)
        return _Call(self._owner, method, functools.partial(method, *args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)  # its name, its words, its module

    def __repr__(self) -> str:
        return f"<async {self.__wrapped__!r}>"


def _named(coroutine: Any, method: Callable[..., Any]) -> Coroutine[Any, Any, Any]:
    """The coroutine under the method's name, for Python's warnings and for tracebacks."""
    coroutine.__qualname__ = getattr(method, "__qualname__", coroutine.__qualname__)
    named: Coroutine[Any, Any, Any] = coroutine
    return named


async def _verb(
    owner: AsyncStandfast, room: Room, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A verb without a thread of its own: the engine answers on the loop."""

    def work(tx: Tx) -> Any:
        return body(room, tx, *args, **kwargs)

    return _answer(owner, raised(await _Desk.of(asyncio.get_running_loop()).submit(room.store, work)))


async def _on_thread(owner: AsyncStandfast, call: Callable[[], Any]) -> Any:
    return _answer(owner, await owner._run(call))


def _answer(owner: AsyncStandfast, value: Any) -> Any:
    return AsyncObject(owner, value) if getattr(type(value), "awaited", False) else value


class _Call(Coroutine[Any, Any, Any]):
    """What a method returns that may also be a context manager or an iterator: await it, enter it, or iterate.

    Entered or iterated, it closes the coroutine it holds: Python must not warn that this one was never awaited.
    """

    __slots__ = ("_call", "_coroutine", "_entered", "_owner")

    def __init__(self, owner: AsyncStandfast, method: Callable[..., Any], call: Callable[[], Any]) -> None:
        self._owner = owner
        self._call = call
        self._coroutine = _named(_on_thread(owner, call), method)
        self._entered: AbstractContextManager[Any] | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)  # its name and frame, as asyncio shows them

    async def _run(self) -> Any:
        self._coroutine.close()
        return await self._owner._run(self._call)

    async def __aenter__(self) -> Any:
        self._entered = manager = await self._run()
        value = await self._owner._run(manager.__enter__)
        return AsyncObject(self._owner, value)

    async def __aiter__(self) -> AsyncIterator[Any]:
        """`async for event in sf.events.follow(…)`: each wait is short, so that cancelling is heard."""
        following = await self._run()
        try:
            while (item := await self._next(following)) is not None:
                yield item
        finally:
            following.close()

    async def _next(self, following: Any) -> Any:
        loop = asyncio.get_running_loop()
        end = float("inf") if following.patience_s is None else loop.time() + following.patience_s
        while True:
            left_s = end - loop.time()
            item = await self._owner._run(functools.partial(following.within, max(0.0, min(WAIT_S, left_s))))
            if item is not None or left_s <= 0:
                return item

    async def __aexit__(self, *exc: Any) -> Any:
        assert self._entered is not None
        return await self._owner._run(functools.partial(self._entered.__exit__, *exc))


class AsyncObject:
    """A room, a session or a decision whose methods are awaited and whose values are plain."""

    def __init__(self, owner: AsyncStandfast, inner: Any) -> None:
        object.__setattr__(self, "_owner", owner)
        object.__setattr__(self, "_inner", inner)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if getattr(type(value), "awaited", False):
            return AsyncObject(self._owner, value)
        return self._owner._awaited(value)

    def tools(self, *functions: Callable[..., Any]) -> list[Callable[..., Any]]:
        """An agent's tools, to be awaited: same signatures, and every call an effect of this session."""
        made = foreign.with_bridge(_nowhere, functools.partial(self._inner.tools, *functions))
        return [_awaited_tool(self._owner, tool) for tool in made]

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)

    def __repr__(self) -> str:
        return f"<async {self._inner!r}>"


def _awaited_tool(owner: AsyncStandfast, tool: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(tool)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await owner._run(functools.partial(tool, *args, **kwargs))

    # Whoever unwraps a tool must not find the one that blocks the loop.
    del call.__wrapped__
    return call


def _nowhere(awaitable: Awaitable[Any]) -> Any:
    raise AssertionError("a tool is made here, not called")


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


class _Desk:
    """What goes from one loop to the engine, and the answers on their way back.

    Answers that came together wake the loop once. The tasks they wake ask again in one turn of the loop,
    one after the other; their bodies go out together at its end, or the first of them would be committed
    and synced alone while the others still come.
    """

    _by_loop: dict[int, _Desk] = {}  # noqa: RUF012  # one shared table on purpose

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._mutex = threading.Lock()
        self._ready: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        self._going: list[tuple[Store, Callable[[Tx], Any], asyncio.Future[Any]]] = []
        self._together = False  # whether the last answers were more than one

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _Desk:
        found = cls._by_loop.get(id(loop))
        if found is None or found.loop is not loop:
            found = cls._by_loop[id(loop)] = _Desk(loop)
        return found

    def submit(self, store: Store, work: Callable[[Tx], Any]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        if not self._together:  # a lone task does not wait for a turn of the loop
            self._hand_over(store, work, future)
            return future
        self._going.append((store, work, future))
        if len(self._going) == 1:
            self.loop.call_soon(self._send)
        return future

    def _send(self) -> None:
        going, self._going = self._going, []
        for store, work, future in going:
            if future.cancelled():
                continue
            try:
                self._hand_over(store, work, future)
            except BaseException as error:  # noqa: BLE001  # closed, or given up: whoever awaits it is told
                future.set_exception(error)

    def _hand_over(self, store: Store, work: Callable[[Tx], Any], future: asyncio.Future[Any]) -> None:
        """A cancelled task withdraws a body that has not begun."""
        store.submit(work, functools.partial(self._put, future), wanted=lambda: not future.cancelled())

    def _put(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> Wake:
        with self._mutex:
            self._ready.append((future, result, error))
        return self._wake

    def _wake(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._mutex:
            ready, self._ready = self._ready, []
        if not ready:  # by two engines at once, and the first call has served both
            return
        self._together = len(ready) > 1
        for future, result, error in ready:
            if future.cancelled():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
