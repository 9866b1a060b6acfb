"""The methods of items that LangGraph's store does not call."""

from __future__ import annotations

from pathlib import Path

import standfast
from standfast.clock import SECOND_US, ManualClock
from standfast.record.items import Change


def test_a_sweep_removes_a_bounded_number_of_items_and_reads_ignore_the_rest(engine_url: str, tmp_path: Path) -> None:
    """One transaction removes at most 1,000 rows, also if a caller asks for more."""
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        kept = Change(("memory",), "kept", {"n": 0})
        sf.items.change([kept, *(Change(("memory",), f"k{n}", {"n": n}, ttl_us=SECOND_US) for n in range(1002))])
        assert sf.items.sweep() == 0
        clock.advance("2s")
        assert sf.items.get(("memory",), "k1") is None
        assert sf.items.sweep(limit=5000) == 1000
        assert sf.items.sweep(limit=1) == 1
        assert [sf.items.sweep(), sf.items.sweep()] == [1, 0]
        assert sf.items.get(("memory",), "kept") is not None
