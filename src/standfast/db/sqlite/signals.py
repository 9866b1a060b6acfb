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
_main_ident = threading.main_thread().ident


def _forked() -> None:
    """The thread that forked is the child's main one."""
    global _main_ident
    _main_ident = _get_ident()


os.register_at_fork(after_in_child=_forked)


class Acquirable(Protocol):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...


class HeldBack:
    """`with HeldBack() as signals:` — free in every thread but the main one."""

    __slots__ = ("_handlers", "_main", "_noted")

    def __init__(self) -> None:
        self._main = _get_ident() == _main_ident
        self._handlers: list[tuple[int, Callable[[int, Any], Any]]] = []
        self._noted: list[int] = []

    def __enter__(self) -> HeldBack:
        if self._main:
            try:
                for number in _NUMBERS:
                    handler = _c.getsignal(number)
                    if callable(handler):
                        self._handlers.append((number, handler))
                        _c.signal(number, self._note)
            except BaseException:  # one that was not held back yet has struck
                self._restore()
                raise
        return self

    def _note(self, number: int, _: object) -> None:
        self._noted.append(number)

    def __exit__(self, *exc: object) -> None:
        if not self._main:
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
            _c.signal(number, handler)

    def let_through(self) -> None:
        """Run the handlers of what came meanwhile, here, where an exception of theirs does no harm."""
        while self._noted:
            number = self._noted.pop(0)
            dict(self._handlers)[number](number, sys._getframe())

    def wait(self, lock: Acquirable, timeout_s: float = float("inf")) -> bool:
        """Acquire, letting signals through meanwhile. Raises what their handlers raise."""
        if not self._main:
            return lock.acquire(timeout=-1 if timeout_s == float("inf") else max(timeout_s, 0.0))
        end = time.monotonic() + timeout_s
        while not lock.acquire(timeout=min(_LOOK_EVERY_S, max(end - time.monotonic(), 0.0))):
            self.let_through()
            if time.monotonic() >= end:
                return False
        return True
