"""A copy of the repository with an environment of its own, so that child processes run the changed code too."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".mutate", "*_cache", "__pycache__", ".hypothesis", "standfast-prove"
)
START = "import os; os.environ.get('STANDFAST_TEST_SEEN') and __import__('standfast_prove.mutate.calls')"


def environment(**added: str) -> dict[str, str]:
    """Environment variables for a separate test run, without those of a pytest in which this process may run."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | added


def make(root: Path, place: Path) -> Path:
    """Copy `root` to `place`. Its `.venv` has links to the packages of this process, and this copy's own sources."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(root, place, ignore=LEFT_OUT, symlinks=True)
    venv = place / ".venv"
    (venv / "bin").mkdir(parents=True)
    shutil.copy(Path(sys.prefix, "pyvenv.cfg"), venv)
    for name in ("python", "python3"):
        (venv / "bin" / name).symlink_to(os.path.realpath(sys.executable))
    _script(Path(sys.prefix, "bin", "standfast"), venv / "bin" / "standfast")
    packages = Path(sysconfig.get_path("purelib"))
    site = venv / packages.relative_to(sys.prefix)
    site.mkdir(parents=True)
    for entry in packages.iterdir():
        if entry.suffix == ".pth":
            (site / entry.name).write_text(entry.read_text().replace(str(root), str(place)))
        else:
            (site / entry.name).symlink_to(entry)
    (site / "zzz_calls.pth").write_text(f"{START}\n")
    return place


def _script(source: Path, target: Path) -> None:
    if source.exists():
        lines = source.read_text().splitlines(keepends=True)
        target.write_text("".join([f"#!{target.parent}/python\n", *lines[1:]]))
        target.chmod(0o755)


def python(place: Path) -> str:
    return str(place / ".venv" / "bin" / "python")


def put(path: Path, content: bytes) -> None:
    """Write a source file and remove its compiled form, which Python compares by size and second only."""
    path.write_bytes(content)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()
