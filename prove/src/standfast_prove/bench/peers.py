"""Packages of other projects to compare with. They are installed from PyPI on request and never part of the project.

They are installed in a separate directory inside the environment, so that nothing else imports them. Without a network
the benchmark reports the missing packages and measures the rest.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path


@functools.cache
def installed(requirement: str) -> str | None:
    """The directory with the package `requirement` ("aiosqlite==0.22.1"), or None if it cannot be installed."""
    target = Path(sys.prefix) / "bench-peers" / requirement
    if target.is_dir():
        return str(target)
    target.parent.mkdir(exist_ok=True)
    with open(target.parent / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # only one of the processes that need the package installs it
        return str(target) if target.is_dir() or _install(requirement, target) else None


def _install(requirement: str, target: Path) -> bool:
    """Install completely or not at all: the directory gets its final name after all files are in it."""
    fresh = target.with_name(f".{os.getpid()}")
    options = ["--quiet", "--retries", "1", "--no-compile", "--target", str(fresh)]
    command = [sys.executable, "-P", "-m", "pip", "install", *options, requirement]
    try:
        if subprocess.run(command, check=False, capture_output=True, text=True).returncode != 0:
            return False
        fresh.rename(target)
        return True
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
