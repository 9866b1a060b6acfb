"""The README's example is copied and run, as a reader would do."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import standfast

README = Path(__file__).parents[2] / "README.md"


def example() -> str:
    """The first Python block."""
    match = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert match
    return match.group(1)


@pytest.mark.parametrize("network", [True, False], ids=["with a network", "without"])
def test_the_example_dies_once_and_then_finishes_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: bool
) -> None:
    """003-1: the first run dies, and the second one resumes. 002-20: more runs send nothing twice.

    000-4: the result is the same without any network, even without the loopback interface.
    """
    command = [] if network else ["unshare", "--map-root-user", "--net"]
    if command and subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        pytest.skip("NOT SHOWN on this machine: unshare --net is not allowed")
    (tmp_path / "agent.py").write_text(example())
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, sys.executable, "agent.py"], capture_output=True, text=True, timeout=60)

    assert run().returncode == -signal.SIGKILL
    for _ in range(2):
        done = run()
        assert (done.returncode, done.stdout) == (0, "found\n"), done.stderr
    assert (tmp_path / "world.txt").read_text() == "hello\n"
    with standfast.open() as sf:
        (session,) = sf.rows("SELECT state FROM session")
        (effect,) = sf.rows("SELECT state FROM effect")
    assert (session["state"], effect["state"]) == ("completed", "acknowledged")


def test_safe_without_care_has_the_numbers_of_the_comparison() -> None:
    """002-20: duplicates and questions without a lookup, and no duplicate with lookups."""
    page = (README.parent / "docs/comparison.md").read_text()
    row = r"^\| (standfast|dbos|json)\b[^|]*\| (yes|no) \| \d+ \| (\d+) \| \d+ \| (\d+) \|"
    measured = {(system, care): counts for system, care, *counts in re.findall(row, page, re.MULTILINE)}
    sent = {system: measured[system, "no"][0] for system in ("standfast", "dbos", "json")}
    said = " ".join(README.read_text().split())
    assert "standfast {standfast}, DBOS {dbos}, JSON files {json}.".format(**sent) in said
    assert f"asked a person in {measured['standfast', 'no'][1]} of the runs" in said
    assert {measured[system, "yes"][0] for system in sent} == {"0"}


def test_every_command_in_the_readme_exists() -> None:
    from standfast.cli.registry import BY_NAME

    commands = set(re.findall(r"^standfast (\w+)", README.read_text(), re.MULTILINE))
    assert commands <= set(BY_NAME), commands - set(BY_NAME)


def test_every_page_the_readme_names_is_there() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", README.read_text()):
        assert (README.parent / link.partition("#")[0]).exists(), link
