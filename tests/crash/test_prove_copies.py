"""Short samples of the campaign `copies`."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.campaigns import copies


def test_a_copy_is_absent_or_whole(engine_url: str, tmp_path: Path) -> None:
    """001-54, 001-75: while two processes write, a copy is killed or fails at its n-th system call."""
    url = engine_url if "://" in engine_url else None
    outcome = copies.run(tmp_path, url=url, seed=1, kills=1, faults=3)
    assert outcome.bad == []
    assert outcome.seen["faults"] == 3
    assert outcome.seen["rows acknowledged"] > 0


@pytest.mark.slow
def test_with_the_manifest_first_half_a_copy_is_found(tmp_path: Path) -> None:
    """The control."""
    outcome = copies.run(tmp_path, seed=1, kills=2, faults=14, manifest_first=True)
    assert outcome.bad != []
