"""A year of loops on a virtual clock: killed, restarted, moved, with clocks that jump and clocks that change."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.loops_soak import soak


def test_in_a_year_every_slot_of_every_loop_has_exactly_the_row_the_model_predicts(tmp_path: Path) -> None:
    """000-37, 000-50: killed, restarted, moved and out of its time, no slot is missed silently and none is doubled."""
    played = soak(tmp_path, seed=1, days=366)
    assert played["slots"] > 4_000
    for what in ("kills", "clock jumps", "reboots", "stops", "runs taken from the dead", "people pause"):
        assert played[what] >= 3, what
    assert played["floods"] > 0
    assert played["slots in ranges"] > 0
    assert played["late workers refused"] > 0
