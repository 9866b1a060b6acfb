"""Calling other people's code: steps, `do`, `probe`, `undo`, folds. Always outside a transaction.

The core is synchronous and so is this call. Under the async facade it runs on a worker thread,
and a coroutine that the called function returns is awaited on the caller's event loop, through
the bridge the facade has put there. Without a bridge a coroutine is refused by name.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from standfast.errors import InvalidInput

T = TypeVar("T")
Bridge = Callable[[Awaitable[Any]], Any]

_here = threading.local()
_inside: ContextVar[str | None] = ContextVar("standfast_inside_effect", default=None)
"""The tool of the effect whose function, probe or undo is running; tasks and copied contexts inherit it."""


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
    """Whether `error` says that this very function was a coroutine nobody awaited."""
    return isinstance(error, NotAwaited) and error.function is function


def with_bridge(bridge: Bridge, function: Callable[[], T]) -> T:
    """Run `function` on this thread, awaiting what foreign code returns through `bridge`."""
    before = getattr(_here, "bridge", None)
    _here.bridge = bridge
    try:
        return function()
    finally:
        _here.bridge = before


# -- effects inside effects ----------------------------------------------------------------------------


class Nested(InvalidInput):
    """An effect or a step was called inside the body of an effect. Nothing of it was recorded."""

    def __init__(self, what: str, outer: str) -> None:
        super().__init__(
            f"{what} was called inside effect {outer!r}: one of them could be in doubt while the other is not",
            f"call it before or after {outer!r}, from the session's own code",
            code="nested_effect",
        )


@contextmanager
def inside(tool: str) -> Iterator[None]:
    """Mark the block as the body of an effect: its function, its probe or its undo."""
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
