"""Which parameters of a test are slow: `make test` runs a sample of them, `make slow` the others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet


def sampled(names: Iterable[object], *sample: object) -> list[ParameterSet]:
    """Each as a parameter: the sample for every run, the others slow."""
    return [pytest.param(name, marks=() if name in sample else pytest.mark.slow) for name in names]
