"""`Waiting`: an iterator over mail or events that waits for the next one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Self, TypeVar

from standfast.db.contract import Watch

T = TypeVar("T")

LOOK_AGAIN_S = 1.0
"""How often a waiting reader queries the store without a notification: a notification may be lost."""


class Waiting(ABC, Generic[T]):
    """An iterator that waits for the next item. Close it, or use `with`."""

    patience_s: float | None
    """How long the reader waits for the next item. None: without a limit."""
    _watch: Watch | None = None

    @abstractmethod
    def within(self, timeout_s: float | None) -> T | None:
        """The next item, or None if none comes in this time."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        found = self.within(self.patience_s)
        if found is None:
            self.close()
            raise StopIteration
        return found

    def close(self) -> None:
        """Stop waiting."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
