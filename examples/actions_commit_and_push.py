"""Commit and push with ready effects: run twice, the second run sends nothing. No probe is written here."""

import os
import subprocess
import tempfile
from pathlib import Path

import standfast
from standfast.actions import files, git

os.environ |= {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
os.environ |= {"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.org"}


def prepare(shop: str) -> None:
    """A repository with one commit, and a bare remote in it."""
    commands = ("init -q -b main", "init -q --bare origin.git", "remote add origin origin.git")
    for words in commands:
        subprocess.run(["git", *words.split()], cwd=shop, check=True)
    Path(shop, "parser.py").write_text("broken\n")
    subprocess.run(["git", "add", "parser.py"], cwd=shop, check=True)
    subprocess.run(["git", "commit", "-q", "-m", "first"], cwd=shop, check=True)


def fix(shop: str) -> str:
    with standfast.session(f"fix-42 in {shop}", agent="coder"):
        before = git.head(shop)
        files.write(f"{shop}/parser.py", "fixed\n")
        commit = git.commit("fix the parser", parent=before, repository=shop)
        git.push("origin", "fix-42", commit, repository=shop)
        return commit


with tempfile.TemporaryDirectory() as shop:
    prepare(shop)
    first, second = fix(shop), fix(shop)
    print("the same commit, pushed once:", first == second)
    print("it is on the remote:", git.find_push("origin", "fix-42", first, shop))
