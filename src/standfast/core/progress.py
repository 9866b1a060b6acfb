"""Report the progress of long work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

T = TypeVar("T")

Progress = Callable[[str, int, int], object]
"""A callback that gets the name of the work, the amount that is done, and the whole amount (0: not known)."""


def quiet(doing: str, done: int, total: int) -> None:
    """Report no progress."""


def each(doing: str, found: Collection[T], progress: Progress) -> Iterator[T]:
    """Yield each of `found`, and report it after the caller is done with it."""
    for done, one in enumerate(found, start=1):
        yield one
        progress(doing, done, len(found))
