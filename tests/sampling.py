"""Splits the parameters of a test: `make test` runs a sample of them, `make slow` runs the others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet


def sampled(names: Iterable[object], *sample: object) -> list[ParameterSet]:
    """The values as test parameters: those outside the sample have the mark `slow`."""
    return [pytest.param(name, marks=() if name in sample else pytest.mark.slow) for name in names]
