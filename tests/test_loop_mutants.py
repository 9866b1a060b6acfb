"""Seeded bugs in loops and runs are found by the soak: a sample here, all of them in the long campaigns."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast.prove.mutants.loops import MUTANTS, found_by_the_soak

SAMPLE = (
    "a gap leaves no rows",
    "an interval drifts",
    "a skipped hour loses its slot",
    "the dead keep their runs",
    "the living lose their runs",
    "nothing is tried again",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_the_soak_finds(name: str, tmp_path: Path) -> None:
    """000-50: "0 missed, 0 doubled" means something only if what would miss or double is noticed."""
    assert found_by_the_soak(MUTANTS[name], tmp_path) is not None
