"""Signals held back while a thread leads: Ctrl-C must not strike between COMMIT and the answer.

A signal's Python handler runs in the main thread, between any two instructions of it, and
usually raises. In the middle of a shared commit that would leave others waiting for ever, or
have their work done twice. So the main thread notes signals while it leads and lets them through
where it is safe: while it waits for its turn, and when it is done.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

# The C functions themselves: the module around them wraps each answer in an enum, at 2 µs a call.
_c: Any = import_module("_signal")
_NUMBERS: tuple[int, ...] = tuple(
    getattr(_c, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGQUIT", "SIGUSR1", "SIGUSR2")
)
_LOOK_EVERY_S = 0.1
_get_ident = threading.get_ident
_signal, _getsignal = _c.signal, _c.getsignal
_main_ident = threading.main_thread().ident


def _forked() -> None:
    """The thread that forked is the child's main one."""
    global _main_ident
    _main_ident = _get_ident()


os.register_at_fork(after_in_child=_forked)


Handlers = tuple[tuple[int, Callable[[int, Any], Any]], ...]
_seen: tuple[tuple[object, ...], Handlers] = ((), ())


def _look_again(found: tuple[Any, ...]) -> Handlers:
    """The signals with a handler in Python. They hardly ever change between two writes."""
    global _seen
    handlers = tuple(pair for pair in zip(_NUMBERS, found, strict=True) if callable(pair[1]))
    _seen = found, handlers
    return handlers


class Acquirable(Protocol):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...


class Struck(BaseException):
    """A signal came for the main thread while another one did its work: what was not committed was undone."""


class HeldBack:
    """`with HeldBack() as signals:` — free in every thread but the main one."""

    __slots__ = ("_handlers", "_noted")

    _handlers: Handlers
    _noted: dict[int, object]

    def __enter__(self) -> HeldBack:
        self._handlers = ()
        if _get_ident() == _main_ident:
            # A method of the dict's own is the handler that notes: it runs no instruction of Python's, so
            # nothing can strike inside it.
            noted: dict[int, object] = {}
            self._noted = noted
            try:
                found = tuple(map(_getsignal, _NUMBERS))
                self._handlers = handlers = _seen[1] if found == _seen[0] else _look_again(found)
                for number, _ in handlers:
                    _signal(number, noted.setdefault)
            except BaseException:  # one that was not held back yet has struck
                self._restore()
                raise
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._handlers:
            return
        try:
            self._restore()
        except BaseException:  # one that was let through again has struck: the others must be, too
            self._restore()
            self.let_through()
            raise
        if self._noted:
            self.let_through()

    def _restore(self) -> None:
        for number, handler in self._handlers:
            _signal(number, handler)

    def let_through(self) -> None:
        """Run the handlers of what came meanwhile, here, where an exception of theirs does no harm.

        They run in the main thread alone. In another one that does its work Struck is raised instead.
        """
        if self._handlers and _get_ident() != _main_ident:
            if self._noted:
                raise Struck
            return
        while self._handlers and self._noted:
            number = next(iter(self._noted))
            del self._noted[number]
            dict(self._handlers)[number](number, sys._getframe())

    def wait_unless_struck(self, lock: Acquirable, timeout: float) -> bool:
        """Acquire; False after `timeout`, or soon after a signal came, which is kept."""
        end = time.monotonic() + timeout
        while True:
            left = max(end - time.monotonic(), 0.0)
            if lock.acquire(timeout=min(_LOOK_EVERY_S, left) if self._handlers else left):
                return True
            if not left or (self._handlers and self._noted):
                return False

    def wait(self, lock: Acquirable, timeout: float = float("inf")) -> bool:
        """Acquire, letting signals through meanwhile. Raises what their handlers raise."""
        if not self._handlers:
            return lock.acquire(timeout=-1 if timeout == float("inf") else max(timeout, 0.0))
        end = time.monotonic() + timeout
        while not lock.acquire(timeout=min(_LOOK_EVERY_S, max(end - time.monotonic(), 0.0))):
            self.let_through()
            if time.monotonic() >= end:
                return False
        return True
