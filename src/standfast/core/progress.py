"""How far long work is: a method calls `progress` with the name of the work, how much is done and how much there is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

T = TypeVar("T")

Progress = Callable[[str, int, int], object]
"""Called with the name of the work, how much is done, and how much there is (0: not known)."""


def quiet(doing: str, done: int, total: int) -> None:
    """Report no progress."""


def each(doing: str, found: Collection[T], progress: Progress) -> Iterator[T]:
    """Yield each of `found`, and report it after the caller is done with it."""
    for done, one in enumerate(found, start=1):
        yield one
        progress(doing, done, len(found))
