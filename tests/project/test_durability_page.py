"""The durability page names a test and a seeded bug for each defect that was repaired."""

from __future__ import annotations

import re
from pathlib import Path

from standfast_prove.mutants import registry

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "durability.md"


def test_each_repaired_defect_has_a_test_and_a_seeded_bug_that_exist() -> None:
    """000-1, 000-50"""
    table = PAGE.read_text().partition("## Defects that were repaired")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 12
    tests = {
        name for path in ROOT.glob("tests/*/test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    for _, cited, bugs in rows:
        assert set(re.findall(r"`(\w+)`", cited)) <= tests, cited
        assert set(bugs.split("; ")) <= set(registry.every()), bugs
