"""Every example runs, and runs again: what it says it did is done once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import places

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_from_changing_directories_and_says_the_same(example: Path, tmp_path: Path) -> None:
    """000-36: what it says it did is done once, and no run stops that no crash came before: 100 runs in all."""
    home = places.repository(tmp_path / "shop", places.ORIGIN)
    outside = tmp_path / "outside"
    outside.mkdir()
    environment = {**os.environ, "STANDFAST_DATA_DIR": str(tmp_path / "data")}
    said = []
    for where in (home, outside, places.worktree(home), places.clone(home)):
        for file in home.iterdir():  # what stands for the outside system is the same from everywhere
            if file.name != ".git" and where != home:
                (where / file.name).symlink_to(file)
        done = subprocess.run(
            [sys.executable, str(example)], env=environment, cwd=where, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, ""), where
        said.append(done.stdout)
    assert said[0]
    # Outside, tasks and decisions are other ones.
    assert (said[2], said[3]) == (said[0], said[0])


def test_a_hundred_runs_of_examples_are_made() -> None:
    assert 4 * len(EXAMPLES) >= 100


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
