"""The simulation: equal seeds give equal simulations, each one ends settled, and the seeded bugs are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.campaigns.simulation import run
from standfast_prove.mutants.simulation import MUTANTS, found_by_the_simulation


def test_everything_settles_and_the_same_seed_plays_the_same_again(tmp_path: Path) -> None:
    """002-10, 002-11: processes are killed, stopped and outlive their leases. No action is done twice or lost."""
    played = [run(tmp_path / str(n), seed=seed, simulations=15) for n, seed in enumerate((3, 3, 4))]
    assert [one.bad for one in played] == [[], [], []]
    assert played[0] == played[1]
    assert played[0].name != played[2].name
    assert played[0].seen["kills"] > 20


def test_on_postgresql_too(pg_database: str, tmp_path: Path) -> None:
    assert run(tmp_path, seed=1, simulations=20, url=pg_database).bad == []


@pytest.mark.parametrize("name", ["compared outside the transaction", "every doubt is a failure"])
def test_a_seeded_bug_is_found(name: str, tmp_path: Path) -> None:
    assert found_by_the_simulation(MUTANTS[name], tmp_path) is not None
