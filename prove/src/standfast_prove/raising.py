"""A block that must raise an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def raising(kind: type[BaseException] | tuple[type[BaseException], ...], *, match: str = "") -> Iterator[None]:
    """The block must raise this error with a message that matches `match`. Otherwise AssertionError is raised."""
    try:
        yield
    except kind as error:
        if not re.search(match, str(error)):
            raise AssertionError(f"{error!r} does not say {match!r}") from error
        return
    names = [one.__name__ for one in kind] if isinstance(kind, tuple) else [kind.__name__]
    raise AssertionError(f"{' or '.join(names)} was not raised")
