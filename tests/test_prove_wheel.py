"""The evaluation from an installed wheel, on a machine that never saw the source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def built(source: Path, place: Path) -> Path:
    """The wheel of the distribution in `source`."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = place.glob("*.whl")
    return wheel


def test_prove_runs_from_an_installed_wheel(tmp_path: Path) -> None:
    """002-33: nothing but the two packages and their dependencies; the C sources travel inside."""
    site, place = tmp_path / "site", tmp_path / "place"
    place.mkdir()
    for source in (ROOT, ROOT / "prove"):
        zipfile.ZipFile(built(source, tmp_path / source.name)).extractall(site)
    environment = os.environ | {"PYTHONPATH": str(site)}
    words = ["--only", "tail", "--engine", "sqlite", "--short", "--minutes", "0", "--json"]
    command = [sys.executable, "-m", "standfast", "prove", *words]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["data"]
    assert said["versions"]["source"] == "wheel"
    assert [(one["campaign"], one["bad"]) for one in said["results"]] == [("tail", [])]
    assert (site / "standfast_prove" / "faults" / "disk.c").exists()
