"""Every example runs, and runs again: what it says it did is done once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_twice_and_says_the_same(example: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "STANDFAST_DATA_DIR": str(tmp_path / "data")}
    first, second = (
        subprocess.run([sys.executable, str(example)], env=environment, cwd=tmp_path, capture_output=True, text=True)
        for _ in range(2)
    )
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout
    assert (second.returncode, second.stdout, second.stderr) == (0, first.stdout, "")
