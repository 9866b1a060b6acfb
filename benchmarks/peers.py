"""Other people's packages to compare with: installed from PyPI on request, never part of the project.

They go into a directory of their own inside the environment, so that nothing else ever imports them.
Without a network the benchmark says so and does what it can by hand.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path


@functools.cache
def installed(requirement: str) -> str | None:
    """The directory that holds `requirement` ("aiosqlite==0.22.1"), or None where it cannot be had."""
    target = Path(sys.prefix) / "bench-peers" / requirement
    if target.is_dir():
        return str(target)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target), requirement]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return str(target) if done.returncode == 0 else None
