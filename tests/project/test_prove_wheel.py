"""The evaluation is a distribution of its own: the commands `prove` and `bench` with it and without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def built(source: Path, place: Path) -> Path:
    """The wheel built from the distribution in `source`."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = place.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_prove_runs_from_an_installed_wheel(tmp_path: Path) -> None:
    """002-33: only the two packages and their dependencies are installed. The wheel includes the C sources."""
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


WITHOUT = """
import sys

class Hidden:
    def find_spec(name, *_):
        if name == "standfast_prove":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden)
from standfast.cli import main
sys.exit(main())
"""
"""`standfast` as it is where standfast-prove is not installed."""


@pytest.mark.parametrize("words", [["prove", "--minutes", "1"], ["bench"], ["prove", "--help"], ["help", "bench"]])
def test_without_the_distribution_the_commands_print_how_to_install_it(words: list[str]) -> None:
    """DESIGN §2: exit code 78, and the message has the pip command."""
    done = subprocess.run([sys.executable, "-c", WITHOUT, *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (78, "")
    assert "standfast-prove is not installed" in done.stderr
    assert "pip install ./prove" in done.stderr


def test_without_the_distribution_a_program_reads_the_refusal_as_json() -> None:
    """DESIGN §2: options of a missing command cannot be parsed, but `--json` still makes the error JSON."""
    done = subprocess.run([sys.executable, "-c", WITHOUT, "bench", "--json"], capture_output=True, text=True)
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["code"]) == (78, "not_installed")
    assert error["hint"].endswith("pip install ./prove")


def test_without_the_distribution_help_and_completion_work() -> None:
    """DESIGN §2: only the commands `prove` and `bench` need standfast-prove."""
    listed = subprocess.run([sys.executable, "-c", WITHOUT, "help", "all"], capture_output=True, text=True)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "\n  prove " in listed.stdout
    asked = {"_STANDFAST_COMPLETE": "bash_complete", "COMP_WORDS": "standfast prove --", "COMP_CWORD": "2"}
    completed = subprocess.run([sys.executable, "-c", WITHOUT], env=os.environ | asked, capture_output=True, text=True)
    assert (completed.returncode, completed.stderr) == (0, "")


def test_both_distributions_have_one_version() -> None:
    """DESIGN §2: each version of the evaluation tests the standfast of the same version."""
    product, prove = (tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"] for path in (".", "prove"))
    assert prove["version"] == product["version"]
    assert f"standfast[postgres]=={product['version']}" in prove["dependencies"]


def test_all_is_every_runtime_extra() -> None:
    """DESIGN §2: the extra `all` installs every dependency that the product can use, and no development tool."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert everything == f"standfast[{','.join(sorted(extras.keys() - {'all', 'dev'}))}]"


def test_the_wheel_of_the_product_has_only_the_product(tmp_path: Path) -> None:
    """DESIGN §2: no C source, seeded bug, campaign or test."""
    names = zipfile.ZipFile(built(ROOT, tmp_path)).namelist()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {name.partition("/")[0] for name in names} == {"standfast", f"standfast-{version}.dist-info"}
    ours = [Path(name) for name in names if name.startswith("standfast/")]
    assert {path.suffix for path in ours} == {".py", ".pyi", ".sql", ".typed"}
    words = {"bench", "benchmarks", "campaigns", "fuzz", "mutants", "prove", "tests"}
    assert [str(path) for path in ours if {part.partition(".")[0] for part in path.parts} & words] == []
