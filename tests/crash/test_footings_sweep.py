"""Killed at every crash point of a write, a lock and a migration, and again while recovering."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast.prove.faults.children import Child

SAMPLE = {"writes": 50, "locks": 50, "migrations": 20}


@pytest.mark.parametrize("world", SAMPLE)
def test_acknowledged_means_there_wherever_a_process_is_killed(tmp_path: Path, world: str) -> None:
    """000-1: kill -9 at every step; never half a transaction, never two live holders, never half a schema."""
    with Child(
        "standfast.prove.crashes.footings:sweep", world=world, place=str(tmp_path), schedules=SAMPLE[world]
    ) as child:
        (schedules,) = child.end(150)
    assert int(schedules) >= 9


@pytest.mark.parametrize("world", ["writes", "locks"])
def test_the_same_on_postgresql(tmp_path: Path, pg_database: str, world: str) -> None:
    """000-1"""
    with Child(
        "standfast.prove.crashes.footings:sweep", world=world, place=str(tmp_path), url=pg_database, schedules=8
    ) as child:
        (schedules,) = child.end(150)
    assert int(schedules) >= 8


def test_a_program_that_acknowledges_too_early_is_found_out(tmp_path: Path) -> None:
    """The control: the sweep can see a loss, and names the schedule."""
    with (
        Child("standfast.prove.crashes.footings:sweep", world="too early", place=str(tmp_path), schedules=50) as child,
        pytest.raises(AssertionError, match=r"killed at commit\.(before_begin|after_begin|before_commit):1"),
    ):
        child.end(150)
