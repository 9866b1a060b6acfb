"""A home outside every temporary directory: standfast remembers only stores that are not in a temporary directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from standfast.db import store_memory
from tests import commands
from tests.conftest import REAL_HOME_VARIABLE


@contextmanager
def home() -> Iterator[Path]:
    """An empty directory that is not temporary. Skips the test if this account cannot write to one."""
    candidates = (Path(__file__).parents[1], Path(os.environ[REAL_HOME_VARIABLE]), Path("/var/lib"), Path("/opt"))
    for parent in candidates:
        if os.access(parent, os.W_OK) and not store_memory._is_temporary(os.path.realpath(parent)):
            break
    else:
        pytest.skip(f"NOT SHOWN on this machine: none of {candidates} is writable and not temporary")
    made = Path(tempfile.mkdtemp(prefix=".standfast-test-home-", dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def environment(home: Path, **more: str) -> dict[str, str]:
    left = ("STANDFAST_REMEMBER", "STANDFAST_DATA_DIR")
    kept = {name: value for name, value in os.environ.items() if name not in left}
    return {**kept, "HOME": str(home), **more}


def run(home: Path, *words: str, input: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Run one command without a terminal, with `home` as the home of its account."""
    return commands.run(*words, environment=environment(home, **more), cwd=home, input=input)
