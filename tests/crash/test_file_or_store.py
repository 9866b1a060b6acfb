"""The comparison of a file and a store runs at small sizes: docs/guides/file-or-store.md has the large ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.bench import file_or_store


@pytest.mark.parametrize("size", [5, 12])
def test_both_sides_are_measured(size: int, tmp_path: Path) -> None:
    """001-85: the same workflow runs with a file and with SQLite."""
    for side in file_or_store.compared(size, str(tmp_path)):
        assert min(side) > 0
    assert file_or_store.SIZES == (5, 500, 50_000)
    assert list(tmp_path.iterdir()) == []
