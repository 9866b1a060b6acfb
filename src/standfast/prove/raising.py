"""An error that has to come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def raising(kind: type[BaseException]) -> Iterator[None]:
    """Around what must end in this error; AssertionError if it does not."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")
