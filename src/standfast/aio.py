"""The same names, awaited.

    async with standfast.aopen() as sf:
        async with sf.session("fix-42") as s:
            pr = await open_pr("a/b", "fix-42")      # an `async def` effect; `await s.effect(f, …)` for a plain one

There is one implementation. A write goes to the engine, and the event loop gets its result once the rows are
on disk. A cancelled task withdraws a write that has not begun, and waits for the outcome of one that has.

A method that does more than one write, or that calls your code (steps, effects), runs on a worker thread, which awaits
your coroutines on the loop of the caller. A cancelled task waits for that thread, so its write may still be made. A
cancelled `do` leaves its effect in doubt.

Each call is a coroutine: `asyncio.create_task(sf.tasks.add("x"))` works, and Python warns of one that is never
awaited. Results that you can also enter or iterate (sessions, locks, `follow`) are a `_Call` around such a coroutine.

`aio.pyi` has the types: one class for each resource and for each object that methods return. `make stubs` writes it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, MutableMapping
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, NoReturn, ParamSpec, Protocol, Self, TypeVar

from standfast.core import user_code
from standfast.core.event_loop import on_thread, submitted
from standfast.db.contract import Tx
from standfast.db.store import Resource
from standfast.errors import InvalidInput

P = ParamSpec("P")
T = TypeVar("T")

ROWS_AT_ONCE = 100
"""Rows of `sf.rows(…)` that a worker thread reads before the loop continues."""
WAIT_S = 0.25
"""How long a worker thread waits for the next event before it checks whether the caller was cancelled."""


class Handle(Protocol):
    """The methods of the synchronous handle that this class calls."""

    def transaction(self) -> AbstractContextManager[Any]: ...

    def close(self) -> None: ...


class AsyncStandfast:
    """An open store whose methods are awaited."""

    def __init__(self, connect: Callable[[], Handle]) -> None:
        self._connect = connect
        self._sync: Handle | None = None

    async def __aenter__(self) -> Self:
        self._sync = await self._run(self._connect)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __enter__(self) -> NoReturn:
        raise InvalidInput("standfast.aopen() is entered with `async with`", "async with standfast.aopen() as sf: …")

    def __exit__(self, *exc: object) -> None:
        """Python looks for it before it enters."""

    async def close(self) -> None:
        sync, self._sync = self._sync, None
        if sync is not None:
            await self._run(sync.close)

    @property
    def sync(self) -> Handle:
        """The synchronous handle, for calls that do not wait for the disk."""
        if self._sync is None:
            raise InvalidInput("this handle is not open", "async with standfast.aopen() as sf: …")
        return self._sync

    async def transaction(self, body: Callable[[Any], Any]) -> Any:
        """Run a plain function of a transaction: everything in it is committed together, or not at all."""

        def run() -> Any:
            with self.sync.transaction() as tx:
                return body(tx)

        return await self._run(run)

    def __getattr__(self, name: str) -> Any:
        return self._awaited(getattr(self.sync, name))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.sync)})

    def _awaited(self, value: Any) -> Any:
        if isinstance(value, Resource):
            return AsyncObject(self, value)
        return _method(self, value) if callable(value) else _answer(self, value)

    async def _run(self, function: Callable[[], Any]) -> Any:
        """Run the function on a worker thread. See `on_thread` for a cancelled caller."""
        return await on_thread(function)


def _method(owner: AsyncStandfast, method: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Wrap a synchronous method for `await`, `async with` and `async for`. `help()` shows the same signature."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        resource, body = getattr(method, "__self__", None), getattr(method, "body", None)
        if body is not None and isinstance(resource, Resource) and resource.tx is None:
            return user_code.named(_verb(owner, resource, body, args, kwargs), method)
        return _Call(owner, method, functools.partial(method, *args, **kwargs))

    return call


async def _verb(
    owner: AsyncStandfast, resource: Resource, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a method that writes. The engine runs it, so the call needs no worker thread."""

    def work(tx: Tx) -> Any:
        return body(resource, tx, *args, **kwargs)

    return _answer(owner, await submitted(resource.store, work))


async def _on_thread(owner: AsyncStandfast, method: Callable[..., Any], call: Callable[[], Any]) -> Any:
    value = await owner._run(call)
    if hasattr(value, "__next__"):
        value.close()
        raise _misused(method, "iterated, not awaited", "async for one in {}: …")
    if hasattr(value, "__enter__"):
        from standfast.ledger.decisions import Deciding
        from standfast.record.node_methods import Subagent

        if not isinstance(value, (Deciding, Subagent)):  # both can be used without a block: `await d.done()`
            raise _misused(method, "entered, not awaited", "async with {} as it: …")
    return _answer(owner, value)


def _misused(method: Callable[..., Any], how: str, line: str) -> InvalidInput:
    return InvalidInput(f"{method.__qualname__} is {how}", line.format(f"….{method.__name__}(…)"))


def _answer(owner: AsyncStandfast, value: Any) -> Any:
    if isinstance(value, MutableMapping) and hasattr(value, "awaited"):
        return AsyncState(owner, value)
    return AsyncObject(owner, value) if getattr(type(value), "awaited", False) else value


class _Call(Coroutine[Any, Any, Any]):
    """The result of a method that is also a context manager or an iterator: await it, enter it, or iterate.

    If it is entered or iterated, it closes the coroutine, so that Python does not warn that this one was never awaited.
    """

    __slots__ = ("_call", "_coroutine", "_entered", "_method", "_owner")

    def __init__(self, owner: AsyncStandfast, method: Callable[..., Any], call: Callable[[], Any]) -> None:
        self._owner = owner
        self._method = method
        self._call = call
        self._coroutine = user_code.named(_on_thread(owner, method, call), method)
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
        if not hasattr(manager, "__enter__"):
            raise _misused(self._method, "not entered", "await {}")
        value = await self._owner._run(manager.__enter__)
        # The worker thread bound it in a copy of this context.
        getattr(manager, "_bind", _nothing)()
        return AsyncIteration(self._owner, value) if hasattr(value, "__next__") else _answer(self._owner, value)

    async def __aiter__(self) -> AsyncIterator[Any]:
        """`async for event in sf.events.follow(…)`."""
        following = await self._run()
        if not hasattr(following, "__next__"):
            raise _misused(self._method, "awaited, not iterated", "for one in await {}: …")
        try:
            async for item in AsyncIteration(self._owner, following):
                yield item
        finally:
            following.close()

    def __enter__(self) -> Any:
        self._coroutine.close()
        raise _misused(self._method, "entered with `async with`", "async with {} as it: …")

    def __exit__(self, *exc: object) -> None:
        """Python looks for it before it enters."""

    def __iter__(self) -> Iterator[Any]:
        self._coroutine.close()
        raise _misused(self._method, "iterated with `async for`, or awaited", "async for one in {0}, or: await {0}")

    async def __aexit__(self, *exc: Any) -> Any:
        assert self._entered is not None
        try:
            return await self._owner._run(functools.partial(self._entered.__exit__, *exc))
        finally:
            getattr(self._entered, "_unbind", _nothing)()


def _nothing() -> None:
    """Does nothing. Context managers that bind nothing in the context use it."""


class AsyncObject:
    """A resource, a session or a decision whose methods are awaited and whose values are plain."""

    def __init__(self, owner: AsyncStandfast, inner: Any) -> None:
        object.__setattr__(self, "_owner", owner)
        object.__setattr__(self, "_inner", inner)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return self._owner._awaited(value)

    def __dir__(self) -> list[str]:
        return dir(self._inner)

    def tools(self, *functions: Callable[..., Any]) -> list[Callable[..., Any]]:
        """The tools of an agent as coroutine functions. Signatures stay the same, and every call is an effect of this
        session."""
        made = user_code.with_bridge(_nowhere, functools.partial(self._inner.tools, *functions))
        return [_awaited_tool(self._owner, tool) for tool in made]

    @property
    def store(self) -> Any:
        """The asynchronous handle of the session."""
        return self._owner if hasattr(type(self._inner), "store") else self._inner.store

    def bind(self, function: Callable[P, T]) -> Callable[P, T]:
        """`function` with this session as the current one, for a thread or an executor: `pool.submit(s.bind(work))`."""
        bound: Callable[P, T] = self._inner.bind(function)
        return bound

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)

    def __repr__(self) -> str:
        return f"<async {self._inner!r}>"


class AsyncIteration(AsyncObject):
    """An iterator of events: `async with sf.events.consume(…) as events`, then `async for event in events`."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        if hasattr(self._inner, "within"):
            while (item := await self._next()) is not None:
                yield item
            return
        while rows := await self._owner._run(lambda: list(islice(self._inner, ROWS_AT_ONCE))):
            for row in rows:
                yield row

    async def _next(self) -> Any:
        """Wait for the next event in short steps, so that a cancelled caller ends soon."""
        loop, following = asyncio.get_running_loop(), self._inner
        end = float("inf") if following.patience_s is None else loop.time() + following.patience_s
        while True:
            left_s = end - loop.time()
            item = await self._owner._run(functools.partial(following.within, max(0.0, min(WAIT_S, left_s))))
            if item is not None or left_s <= 0:
                return item


class AsyncState(AsyncObject):
    """The values of a session. Its methods are awaited. `s.state[key]` is refused, because it would block the event
    loop."""

    async def keys(self) -> list[str]:
        keys: list[str] = await self._owner._run(lambda: list(self._inner))
        return keys

    async def items(self) -> list[tuple[str, Any]]:
        items: list[tuple[str, Any]] = await self._owner._run(lambda: list(self._inner.items()))
        return items

    async def values(self) -> list[Any]:
        return [value for _, value in await self.items()]

    def __getitem__(self, key: str) -> Any:
        raise _would_block(f"s.state[{key!r}]", f"await s.state.get({key!r})")

    def __setitem__(self, key: str, value: Any) -> None:
        raise _would_block(f"s.state[{key!r}] = …", f"await s.state.set({key!r}, …)")

    def __delitem__(self, key: str) -> None:
        raise _would_block(f"del s.state[{key!r}]", f"await s.state.delete({key!r})")

    def __contains__(self, key: str) -> bool:
        raise _would_block(f"{key!r} in s.state", f"await s.state.entry({key!r}) is not None")

    def __iter__(self) -> Iterator[str]:
        raise _would_block("for key in s.state", "for key in await s.state.keys()")

    def __len__(self) -> int:
        raise _would_block("len(s.state)", "len(await s.state.keys())")


def _would_block(what: str, instead: str) -> InvalidInput:
    return InvalidInput(f"{what} would block the event loop", instead)


def _awaited_tool(owner: AsyncStandfast, tool: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(tool)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await owner._run(functools.partial(tool, *args, **kwargs))

    # A caller that unwraps a tool must not find the one that blocks the loop.
    del call.__wrapped__
    return call


def _nowhere(awaitable: Awaitable[Any]) -> Any:
    raise AssertionError("a tool is made here, not called")
