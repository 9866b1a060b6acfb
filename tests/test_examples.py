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


def test_without_a_key_the_governor_meets_every_failure_and_its_books_are_right(tmp_path: Path) -> None:
    """000-46, 000-47: the fallback is deterministic and no happy path: refused, lost, dead, too dear, overdrawn."""
    example = next(path for path in EXAMPLES if path.stem == "credits_governor_without_a_key")
    done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "15 answers, 3 dead agents, 3 done, 3 lost answers, 1 overdrafts refused, 3 refusals",
        "3021 tokens by the provider's books, 3021 by ours",
    ], done.stderr
    keyed = {**os.environ, "MODEL_API_KEY": "x"}
    asked = subprocess.run([sys.executable, str(example)], env=keyed, cwd=tmp_path, capture_output=True, text=True)
    assert "put the client of your provider here" in asked.stderr  # with a key the script is not used
