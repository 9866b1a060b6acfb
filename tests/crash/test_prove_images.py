"""A short sample of the power-loss images, with its controls: every acknowledged row is found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from standfast_prove.campaigns import images
from standfast_prove.faults.operations import Operation
from standfast_prove.faults.platter import Platter
from tests.sampling import sampled
from tests.skipping import or_skip


def test_no_image_of_a_recorded_run_lacks_what_was_acknowledged(tmp_path: Path) -> None:
    """000-1: each sector that was not synced is written, missing or torn."""
    with or_skip():
        outcome = images.run(tmp_path, images=150, seed=2)
    assert outcome.bad == []
    assert sum(outcome.seen.get(name, 0) for name in ("images", "opened again", "equal images")) == 150
    assert outcome.seen["images"] > 0
    assert outcome.seen["acknowledged and looked for"] > 0


@pytest.mark.parametrize("protection", sampled(["waiting", "names"], "names"))
def test_without_a_protection_images_lack_something(tmp_path: Path, protection: str) -> None:
    """The controls: one acknowledges before the sync, one does not sync the names of artifacts."""
    with or_skip():
        assert images.run(tmp_path, images=250, seed=2, protection=protection).bad != []


def test_only_what_a_sync_found_when_it_began_is_certain() -> None:
    """A write during a sync may be lost, and so may a file name whose directory was not synced."""
    platter = Platter({"a": b"....."}, [])
    for kind, name, at, data in [
        ("w", "a", 0, b"1"),
        ("b", "a", 7, b""),
        ("w", "a", 1, b"2"),
        ("s", "a", 7, b""),
        ("c", "b", 0, b""),
        ("w", "b", 0, b"x"),
        ("b", "b", 7, b""),
        ("s", "b", 7, b""),
    ]:
        platter.apply(Operation(kind, name, at, data))
    found = [platter.image(random.Random(seed)).files for seed in range(200)]
    assert {bytes(files["a"].data) for files in found} >= {b"1....", b"12..."}
    assert all(files["a"].data[:1] == b"1" for files in found)
    assert {bytes(files["b"].data) if "b" in files else None for files in found} == {None, b"x"}
