"""A short sample of the campaign with jumping clocks: one lock, real processes, a machine with a wrong date."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.campaigns import clocks


def test_a_lock_has_one_holder_with_any_clock_jumps(tmp_path: Path) -> None:
    """000-48: the clock jumps by up to ten years; the machine is suspended and rebooted; processes are killed."""
    outcome = clocks.run(tmp_path, seed=1, steps=200)
    assert outcome.bad == []
    assert outcome.seen["jumps"] > 30
    assert outcome.seen["grants"] > 5


def test_leases_that_end_by_the_date_are_found_out(tmp_path: Path) -> None:
    """The control."""
    assert clocks.run(tmp_path, seed=1, awake=False).bad != []
