"""Loops compared with the model of the soak test: `standfast_prove.models.loops`."""

from __future__ import annotations

from pathlib import Path

from standfast.core import leases
from standfast_prove.loops_soak import LEASE_US
from standfast_prove.models.playing import play


def test_loops_do_what_a_model_of_them_does(engine_url: str, tmp_path: Path) -> None:
    """000-36, 000-37."""
    assert leases.PROCESS_US == LEASE_US
    play("loops", engine_url, tmp_path / "data", examples=6 if engine_url.startswith("postgres") else 25)
