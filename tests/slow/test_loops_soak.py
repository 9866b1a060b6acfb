"""A year of loops on a virtual clock. Processes are killed, restarted and moved, and clocks jump."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.loops_soak import soak


@pytest.mark.parametrize(
    ("days", "slots", "times"), [(92, 1_000, 1), pytest.param(366, 4_000, 3, marks=pytest.mark.slow)]
)
def test_every_slot_of_every_loop_has_exactly_the_row_the_model_predicts(
    tmp_path: Path, days: int, slots: int, times: int
) -> None:
    """000-37, 000-50: despite kills, restarts, moves and late runs, no slot is doubled or silently missed."""
    played = soak(tmp_path, seed=1, days=days)
    assert played["slots"] > slots
    for what in ("kills", "clock jumps", "reboots", "stops", "runs taken from the dead", "people pause"):
        assert played[what] >= times, what
    assert played["floods"] > 0
    assert played["slots in ranges"] > 0
    assert played["late workers refused"] > 0
