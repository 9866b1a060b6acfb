"""Every example runs twice, and each of its effects happens once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import places

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))


every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(one, id=one.stem, marks=[pytest.mark.slow] if one.stem == "budgets_governor_without_a_key" else [])
        for one in EXAMPLES
    ],
)
def test_an_example_runs_in_a_repository_and_outside_it(example: Path, tmp_path: Path) -> None:
    """000-36: only a crash stops a run, and no run repeats an effect of an earlier run."""
    home = places.repository(tmp_path / "shop", places.ORIGIN)
    outside = tmp_path / "outside"
    outside.mkdir()
    assert all(said_in(example, home, (home, outside)))


@pytest.mark.slow
@every_example
def test_an_example_run_from_changing_directories_prints_the_same(example: Path, tmp_path: Path) -> None:
    """000-36: an example sends each effect once, and only a crash stops a run. There are 100 runs in all."""
    home = places.repository(tmp_path / "shop", places.ORIGIN)
    outside = tmp_path / "outside"
    outside.mkdir()
    said = said_in(example, home, (home, outside, places.worktree(home), places.clone(home)))
    assert said[0]
    # Outside the repository, tasks and decisions belong to another scope.
    assert (said[2], said[3]) == (said[0], said[0])


def said_in(example: Path, home: Path, directories: tuple[Path, ...]) -> list[str]:
    """The example's output in each directory. The runs follow one another and use one store."""
    environment = {**os.environ, "STANDFAST_DATA_DIR": str(home.parent / "data")}
    said = []
    for where in directories:
        for file in home.iterdir():  # each directory has the files that represent the outside system
            if file.name != ".git" and where != home:
                (where / file.name).symlink_to(file)
        done = subprocess.run(
            [sys.executable, str(example)], env=environment, cwd=where, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, ""), where
        said.append(done.stdout)
    return said


def test_a_hundred_runs_of_examples_are_made() -> None:
    assert 4 * len(EXAMPLES) >= 100


def test_without_a_key_the_governor_meets_every_failure_and_its_bill_is_right(tmp_path: Path) -> None:
    """000-46, 000-47: the offline model is deterministic, and its calls fail in each way: refused, lost, killed,
    overdrawn.
    """
    example = next(path for path in EXAMPLES if path.stem == "budgets_governor_without_a_key")
    done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "4 dead agents, 3 done, 2 lost answers, 4 overruns, 3 refusals, 2 stopped by the budget",
        "3585 tokens on the provider's bill, 3585 in our books, 0 held",
    ], done.stderr
    keyed = {**os.environ, "MODEL_API_KEY": "x"}
    asked = subprocess.run([sys.executable, str(example)], env=keyed, cwd=tmp_path, capture_output=True, text=True)
    assert "put the client of your provider here" in asked.stderr  # with a key, the offline model is not used
