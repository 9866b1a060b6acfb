"""The evaluation from an installed wheel, on a machine that never saw the source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_prove_runs_from_an_installed_wheel(tmp_path: Path) -> None:
    """002-33: nothing but the package and its dependencies; its C sources travel inside."""
    built = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(built, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    site, place = tmp_path / "site", tmp_path / "place"
    place.mkdir()
    zipfile.ZipFile(wheel).extractall(site)
    environment = os.environ | {"PYTHONPATH": str(site)}
    words = ["--only", "tail", "--engine", "sqlite", "--short", "--minutes", "0", "--json"]
    command = [sys.executable, "-m", "standfast", "prove", *words]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["data"]
    assert said["versions"]["source"] == "wheel"
    assert [(one["campaign"], one["bad"]) for one in said["results"]] == [("tail", [])]
    assert (site / "standfast" / "prove" / "faults" / "disk.c").exists()
