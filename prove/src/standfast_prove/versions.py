"""The versions that a run used, including that of the source if it is known."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path


def versions() -> dict[str, str]:
    import apsw

    import standfast

    made = {
        "standfast": standfast.__version__,
        "source": source(Path(standfast.__file__).parent),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    for package in ("psycopg", "hypothesis"):
        with suppress(metadata.PackageNotFoundError):
            made[package] = metadata.version(package)
    return made


def source(package: Path) -> str:
    """The commit of a work tree, with a + if files differ from it; "wheel" for an installed package."""
    root = package.parent.parent
    if not (root / ".git").exists() or not (root / "pyproject.toml").exists():
        return "wheel" if _installed() else "unknown"
    commit = _git(root, "rev-parse", "--short=12", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "src", "prove")
    return f"commit {commit}{'+' if changed else ''}" if commit else "unknown"


def _installed() -> bool:
    with suppress(metadata.PackageNotFoundError, json.JSONDecodeError):
        about = json.loads(metadata.distribution("standfast").read_text("direct_url.json") or "{}")
        return not about.get("dir_info", {}).get("editable", False)
    return False


def _git(root: Path, *words: str) -> str:
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, timeout=10)
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


def of_server(url: str) -> str:
    import psycopg

    with psycopg.connect(url) as connection:
        number = connection.info.server_version
    return f"{number // 10000}.{number % 10000}"
