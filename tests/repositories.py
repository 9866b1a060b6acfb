"""Real git repositories for tests: one with a bare remote, in a directory of the test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

AUTHOR = {
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.invalid",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.invalid",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
}


class Repository:
    """A working tree with one commit on `main` and a bare remote `origin` beside it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "shop"
        self.remote = directory / "origin.git"
        self.path.mkdir(parents=True)
        git(directory, "init", "-q", "--bare", "-b", "main", str(self.remote))
        self("init", "-q", "-b", "main")
        self("remote", "add", "origin", str(self.remote))
        self.write("one")
        self("add", "file")
        self.commit("one")

    def __call__(self, *words: str) -> str:
        return git(self.path, *words)

    def write(self, text: str) -> None:
        (self.path / "file").write_text(text)

    def commit(self, message: str) -> str:
        self.write(message)
        self("commit", "-q", "-a", "-m", message)
        return self("rev-parse", "HEAD")

    def on_remote(self, ref: str) -> str:
        """The commit of a ref on the remote, or "" if the remote lacks the ref."""
        return git(self.remote, "for-each-ref", "--format=%(objectname)", ref)


def git(directory: Path, *words: str) -> str:
    ended = subprocess.run(
        ["git", *words], cwd=directory, env={**os.environ, **AUTHOR}, check=True, capture_output=True, text=True
    )
    return ended.stdout.strip()
