"""What this machine cannot show is skipped by name, never passed silently."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from standfast_prove.faults import Unavailable


@contextmanager
def or_skip() -> Iterator[None]:
    """Around a test."""
    try:
        yield
    except Unavailable as missing:
        pytest.skip(f"NOT SHOWN on this machine: {missing}")
