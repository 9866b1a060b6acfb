"""Every seeded bug is found, and without a bug the same harnesses find nothing.

The patches are applied in this process and live in the children the harnesses fork; this process
runs none of the patched code itself. `pytest -s` prints the table of who found what.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast.prove.mutants.effects import MUTANTS, Mutant, found_by

CHECKS = sorted({mutant.harness for mutant in MUTANTS.values() if mutant.harness.startswith("check")})


@pytest.mark.parametrize("name", MUTANTS)
def test_a_seeded_bug_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.patch(monkeypatch)
    complaint = found_by(mutant, tmp_path)
    print(f"\n{name:<40} {mutant.harness:<22} {_last_line(complaint)}")
    assert complaint is not None, f"{name!r} survived {mutant.harness}"


@pytest.mark.parametrize("harness", CHECKS)
def test_without_a_bug_the_scene_is_quiet(harness: str, tmp_path: Path) -> None:
    assert found_by(Mutant("none", harness, lambda m: None), tmp_path) is None


def _last_line(complaint: str | None) -> str:
    lines = (complaint or "survived").strip().splitlines()
    return lines[-1][:100] if len(lines) == 1 else f"{lines[0][:60]} {lines[-1][:80]}"
