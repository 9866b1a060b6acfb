"""Call users' functions: steps, `do`, `probe`, `compensate` and folds. They run outside any transaction.

The core is synchronous, and so is `call`. Under the async facade it runs on a worker thread. If the function returns a
coroutine, the bridge of the facade awaits it on the caller's event loop. Without a bridge, a coroutine is refused.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from standfast.errors import InvalidInput

T = TypeVar("T")
Bridge = Callable[[Awaitable[Any]], Any]

_here = threading.local()
_inside: ContextVar[str | None] = ContextVar("standfast_inside_effect", default=None)
"""The tool of the effect whose function, probe or compensation is running; tasks and copied contexts inherit it."""


class NotAwaited(InvalidInput):
    """An async function in a synchronous session. Its body has not run."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(
            f"{getattr(function, '__qualname__', function)!s} is async; this session is not",
            "open the store with: async with standfast.aopen() as sf",
        )
        self.function = function


def call(function: Callable[..., T], /, *args: object, **kwargs: object) -> T:
    """The function's result; a coroutine's result if it returned one."""
    result = function(*args, **kwargs)
    if not hasattr(result, "__await__"):
        return result
    bridge: Bridge | None = getattr(_here, "bridge", None)
    if bridge is None:
        close = getattr(result, "close", None)
        if close is not None:
            close()  # or Python would warn that it was never awaited
        raise NotAwaited(function)
    return cast("T", bridge(result))


def bridged() -> bool:
    """Whether a coroutine can be awaited from here."""
    return getattr(_here, "bridge", None) is not None


def never_ran(error: BaseException, function: Callable[..., Any] | None) -> bool:
    """Whether `error` says that this very function was a coroutine that was not awaited."""
    return isinstance(error, NotAwaited) and error.function is function


def with_bridge(bridge: Bridge, function: Callable[[], T]) -> T:
    """Run `function` on this thread, awaiting what foreign code returns through `bridge`."""
    before = getattr(_here, "bridge", None)
    _here.bridge = bridge
    try:
        return function()
    finally:
        _here.bridge = before


def awaited(call: Callable[[], Any], function: Callable[..., Any]) -> Coroutine[Any, Any, Any]:
    """A call of an `async def` effect or step: recorded on a worker thread, its function awaited on this loop."""
    from standfast.core.event_loop import on_thread

    return named(on_thread(call), function)


def named(coroutine: Any, function: Callable[..., Any]) -> Coroutine[Any, Any, Any]:
    """The coroutine under the function's name, for Python's warnings and for tracebacks."""
    coroutine.__qualname__ = getattr(function, "__qualname__", coroutine.__qualname__)
    return cast("Coroutine[Any, Any, Any]", coroutine)


# -- declaration -----------------------------------------------------------------------------------------


def refuse_generator(function: Callable[..., Any], name: str) -> None:
    """Raise InvalidInput for a generator function: a call would only make the generator and run nothing."""
    import inspect

    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(
            f"{name}: {function.__qualname__} is a generator function; its body would run after the call is recorded",
            "return a list, and yield from it outside",
        )


def warn_duplicate(before: Any, function: Callable[..., Any], name: str) -> None:
    """Warn if another function has this name: calls of one would return results of the other.

    The same function of the same module is a reload or a notebook cell that runs again. A function inside a function
    lives as long as its caller. For both there is no warning.
    """
    place = f"{function.__module__}.{function.__qualname__}"
    other = None if before is None else f"{before.__module__}.{before.__qualname__}"
    if other is None or other == place or "<locals>" in place + other:
        return
    warnings.warn(
        f"{name} is declared twice, by {other} and by {place}: calls of one would return the results of the other. "
        "Give each its own name.",
        stacklevel=3,
    )


# -- effects inside effects ----------------------------------------------------------------------------


class Nested(InvalidInput):
    """Raised if an effect or a step is called inside the body of an effect. No part of that call is recorded."""

    def __init__(self, what: str, outer: str) -> None:
        super().__init__(
            f"{what} was called inside effect {outer!r}: one of them could be in doubt while the other is not",
            f"call it before or after {outer!r}, from the session's own code; if its function sends nothing "
            "before this call, declare not_applied=(standfast.InvalidInput,)",
            code="nested_effect",
        )


@contextmanager
def inside(tool: str) -> Iterator[None]:
    """Mark the block as the body of an effect: a call of its function, its probe or its compensation."""
    token = _inside.set(tool)
    try:
        yield
    finally:
        _inside.reset(token)


def refuse_nested(what: str) -> None:
    """Raise InvalidInput (`nested_effect`) inside the body of an effect."""
    outer = _inside.get()
    if outer is not None:
        raise Nested(what, outer)
