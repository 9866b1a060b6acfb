"""Short samples of the SQLite campaigns in `standfast_prove`: opens, kills and power loss, each with a control.

`make prove` runs the same campaigns for minutes. A control is the same campaign without the protection in the child
processes. It must find losses: otherwise the campaign could not detect any.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.campaigns import boot, checkpoints, power, torture
from tests.skipping import or_skip


@pytest.mark.parametrize(("old", "rounds"), [(False, 20), (True, 9)], ids=["fresh", "old"])
@pytest.mark.slow
def test_eight_processes_open_one_store_at_once_again_and_again(tmp_path: Path, old: bool, rounds: int) -> None:
    """003-18: all 160 openings succeed, and each migration is applied once."""
    outcome = boot.run(tmp_path, rounds=rounds, old=old)
    assert outcome.bad == []
    assert outcome.seen["openings"] == 8 * rounds


def test_torture_loses_no_acknowledged_row_and_keeps_no_failed_one(tmp_path: Path) -> None:
    """000-1, 003-33: 4 processes with 6 threads each are killed again and again, and all their locks are cancelled."""
    outcome = torture.run(tmp_path, seconds=6)
    assert outcome.bad == []
    assert outcome.seen["kills"] >= 5
    assert outcome.seen["acknowledged"] > 500
    assert outcome.seen["failed on purpose"] > 20


@pytest.mark.slow
def test_torture_without_the_guard_loses_rows(tmp_path: Path) -> None:
    """The control without the guard: either rows are lost, or the check of the WAL stops the writers before that."""

    def goes_wrong(place: Path) -> bool:
        place.mkdir()
        outcome = torture.run(place, seconds=2.5, guard=False)
        return bool(outcome.bad or outcome.seen.get("stopped by the check of the log"))

    assert any(goes_wrong(tmp_path / str(attempt)) for attempt in range(4))


@pytest.mark.slow
def test_checkpoints_beside_writers_damage_nothing(tmp_path: Path) -> None:
    """000-1: the test uses the SQLite library of this installation."""
    assert checkpoints.run(tmp_path, seconds=2).bad == []


def test_power_loss_takes_no_acknowledged_row(tmp_path: Path) -> None:
    """000-1: three processes write until the WAL wraps many times. After the power loss, only synced bytes are left."""
    with or_skip():
        outcome = power.run(tmp_path, losses=8)
    assert outcome.bad == []
    assert outcome.seen["acknowledged"] > 100


def test_power_loss_without_our_sync_takes_acknowledged_rows(tmp_path: Path) -> None:
    """The control: without the sync, rows are lost."""
    assert any(_loses(power.run, tmp_path / str(seed), seed) for seed in range(8))


def test_power_loss_on_a_disk_that_fails_to_sync_takes_no_acknowledged_row(tmp_path: Path) -> None:
    """000-1: if a sync fails, the commit is reported as unknown, and no later commit is acknowledged."""
    with or_skip():
        outcome = power.run_failing(tmp_path, losses=6)
    assert outcome.bad == []
    assert outcome.seen["acknowledged"] > 50
    assert outcome.seen["unknown"] > 5


@pytest.mark.slow
def test_a_real_file_system_cut_off_takes_no_acknowledged_row(tmp_path: Path) -> None:
    """000-1: the kernel shuts an ext4 file system down during writes."""
    with or_skip():
        outcome = power.run_cuts(tmp_path, losses=10)
    assert outcome.bad == []
    assert outcome.seen["acknowledged"] > 100


def test_a_real_file_system_cut_off_without_our_sync_takes_acknowledged_rows(tmp_path: Path) -> None:
    """The control: without the sync, rows are lost."""
    assert any(_loses(power.run_cuts, tmp_path / str(seed), seed) for seed in range(8))


def _loses(campaign: object, place: Path, seed: int) -> bool:
    place.mkdir()
    with or_skip():
        return bool(campaign(place, losses=2, seed=seed, synced=False).seen["lost rows"])  # type: ignore[operator]
