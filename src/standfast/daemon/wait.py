"""Wait for a commit in the store, a signal, the end of a child, or a deadline."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from standfast.errors import StorageError

if TYPE_CHECKING:
    from standfast.db.contract import Engine, Watch
    from standfast.handle import Standfast


class Signals:
    """Record signals. A signal ends a wait that is in progress."""

    def __init__(self) -> None:
        self.asked = 0
        """How many times the daemon was asked to end."""
        self._waiting = False
        self._noted = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]

    def _heard(self, number: int, _: object) -> None:
        if number != signal.SIGCHLD:
            self.asked += 1
        self._noted = True
        if self._waiting:
            raise _Woken

    def wait(self, waiting: Callable[[], bool]) -> bool:
        """Wait. True if there was a notification, the end of a child or a signal."""
        try:
            try:
                self._waiting = True
                return self._noted or waiting()  # a signal that came just before must end this wait too
            finally:
                self._waiting = False
        except _Woken:
            return True
        finally:
            self._noted = False


class _Woken(Exception):
    pass


class Ear:
    """Notifications of the store, also after the store was reopened."""

    def __init__(self, sf: Standfast) -> None:
        self._sf = sf
        self._engine: Engine | None = None
        self._watch: Watch | None = None

    def listen(self, seconds: float) -> bool:
        try:
            if self._watch is None or self._sf.engine is not self._engine:
                self.close()
                self._engine = self._sf.engine
                self._watch = self._engine.watch()
                return True  # commits before this line sent no notification here
            return self._watch.wait(seconds)
        except (StorageError, OSError):
            time.sleep(min(seconds, 1.0))
            return False

    def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


def sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False
