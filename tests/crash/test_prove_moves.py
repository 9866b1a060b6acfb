"""Short samples of the campaign `moves`."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.campaigns import moves
from tests.sampling import sampled

pytestmark = pytest.mark.without_store


@pytest.mark.parametrize("seed", sampled([0, 1], 0))
def test_one_store_has_every_row_after_any_end_of_a_move(pg_database: str, tmp_path: Path, seed: int) -> None:
    """001-52, 002-11, 003-21: a move from each engine is killed or its connection is cut, and its recovery too."""
    outcome = moves.run(tmp_path, url=pg_database, seed=seed, moves=6)
    assert outcome.bad == []
    assert outcome.seen["moves"] == 6
    assert outcome.seen["recoveries interrupted"] > 0


@pytest.mark.slow
def test_a_source_that_is_renamed_first_loses_rows(pg_database: str, tmp_path: Path) -> None:
    """The control."""
    outcome = moves.run(tmp_path, url=pg_database, seed=0, moves=6, renaming=True)
    assert any("0 places take a write" in sentence for sentence in outcome.bad)
