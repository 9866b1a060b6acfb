"""Threads that store their result."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Task(threading.Thread):
    """A thread that stores the result or the exception of its function."""

    def __init__(self, function: Callable[..., object], *args: object) -> None:
        super().__init__(daemon=True)
        self._function, self._args = function, args
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._function(*self._args)
        except BaseException as error:  # noqa: BLE001  the test checks the error
            self.error = error

    def done(self) -> BaseException | None:
        """Wait for its end and return its exception."""
        self.join(60)
        assert not self.is_alive(), "a thread waits for ever"
        return self.error
