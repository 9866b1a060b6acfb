"""Short samples of the failing disk: for every n, the nth operation fails."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.campaigns import disk
from tests.skipping import or_skip


def test_a_file_that_cannot_be_opened_for_a_moment_is_an_error_for_a_moment(tmp_path: Path) -> None:
    """000-1: SQLite opens a file read-only if it cannot be written. Later writes must open it again."""
    with or_skip():
        outcome = disk.run(tmp_path, seed=0, kinds=("o",))
    assert outcome.bad == []
    assert outcome.seen["faults"] > 0
    assert outcome.seen["refusals"] > 0


def test_a_program_that_believes_what_was_refused_is_found_out(tmp_path: Path) -> None:
    """The control."""
    with or_skip():
        assert disk.run(tmp_path, seed=1, kinds=("rum",), believes=True).bad != []
