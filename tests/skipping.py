"""Skips a test with its reason if this machine cannot run it, so that it does not pass silently."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from standfast_prove.faults import Unavailable


@contextmanager
def or_skip() -> Iterator[None]:
    """Decorate a test: it is skipped where it cannot run."""
    try:
        yield
    except Unavailable as missing:
        pytest.skip(f"NOT SHOWN on this machine: {missing}")
