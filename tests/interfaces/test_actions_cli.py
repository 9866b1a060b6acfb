"""Ready probes in the shell: `standfast once` chooses one, `effect show` names it, `effect check` runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.repositories import AUTHOR, Repository

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def shop(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture
def run(tmp_path: Path, shop: Repository) -> Run:
    variables = {**os.environ, **AUTHOR, "STANDFAST_DATA_DIR": str(tmp_path / "data"), "STANDFAST_ACTOR": "tester"}

    def run(*words: str, cwd: Path = shop.path, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "standfast", *words],
            cwd=cwd,
            env={**variables, **more},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def hook(shop: Repository, name: str, then: str) -> None:
    """A git hook that kills the push: pre-push before the commit arrives, the remote's hook after it arrived."""
    directory = (shop.path / ".git" if name == "pre-push" else shop.remote) / "hooks"
    (directory / name).write_text(f"#!/bin/sh\n{then}\n")
    (directory / name).chmod(0o755)


KILL_PARENT = "kill -9 $PPID"


def in_doubt(run: Run, shop: Repository, *words: str) -> dict[str, Any]:
    """Run `once` with a push that is killed before it sends anything."""
    hook(shop, "pre-push", KILL_PARENT)
    killed = run("once", "ship", *words, "--", "git", "push", "origin", "main")
    assert killed.returncode == 137, killed.stderr
    (shop.path / ".git/hooks/pre-push").unlink()
    found: dict[str, Any] = json.loads(run("effect", "show", "ship", "--json").stdout)["data"]
    assert found["in_doubt"]
    return found


def test_once_chooses_the_probe_of_a_push_and_prints_its_name(run: Run, shop: Repository) -> None:
    """002-15, 002-20: a push that was killed before it sent anything is sent by the next call, without a person."""
    in_doubt(run, shop)
    again = run("once", "ship", "--settle", "0s", "--", "git", "push", "origin", "main")
    assert again.returncode == 0, again.stderr
    assert "asked `git ls-remote origin refs/heads/main`: it did not arrive (origin/main is not there)" in again.stderr
    assert shop.on_remote("refs/heads/main") == shop("rev-parse", "HEAD")


def test_a_push_that_arrived_is_not_sent_again(run: Run, shop: Repository) -> None:
    """002-20."""
    in_doubt(run, shop)
    shop("push", "-q", "origin", "main")
    hook(shop, "pre-push", "exit 9")  # a second push would fail
    again = run("once", "ship", "--", "git", "push", "origin", "main")
    assert again.returncode == 0, again.stderr
    assert "it did arrive" in again.stderr


def test_the_stored_commit_is_looked_up_and_not_the_present_one(run: Run, shop: Repository) -> None:
    """001-34: the pushed commit is recorded before the command runs."""
    in_doubt(run, shop)
    shop("push", "-q", "origin", "main")
    shop.commit("two")
    again = run("once", "ship", "--", "git", "push", "origin", "main")
    assert "it did arrive" in again.stderr
    assert shop.on_remote("refs/heads/main") == shop("rev-parse", "HEAD~1")


def test_no_probe_leaves_the_doubt_to_a_person(run: Run, shop: Repository) -> None:
    found = in_doubt(run, shop, "--no-probe")
    assert "probe" not in found["context"]
    again = run("once", "ship", "--no-probe", "--", "git", "push", "origin", "main")
    assert again.returncode == 6, again.stderr


def test_a_remote_that_cannot_be_reached_leaves_the_doubt(run: Run, shop: Repository) -> None:
    """002-15: if the remote is unreachable, the outcome is unknown."""
    in_doubt(run, shop)
    shop("remote", "set-url", "origin", str(shop.remote.with_name("moved.git")))
    again = run("once", "ship", "--settle", "0s", "--", "git", "push", "origin", "main")
    assert again.returncode == 6
    assert "could not tell (origin did not answer" in again.stderr


def test_effect_show_names_the_probe_and_check_asks_it(run: Run, shop: Repository) -> None:
    """002-7: the effect's row names the probe, and one command runs it."""
    found = in_doubt(run, shop)
    shown = run("effect", "show", "ship")
    assert "git ls-remote origin refs/heads/main" in shown.stdout
    assert f"standfast effect check {found['id'][-6:]}" in shown.stdout + shown.stderr
    shop("push", "-q", "origin", "main")
    unasked = run("effect", "check", "ship")
    assert unasked.returncode == 5, "without a terminal nothing is recorded"
    assert "it did arrive" in unasked.stderr
    assert "--yes" in unasked.stderr
    checked = run("effect", "check", "ship", "--yes")
    assert checked.returncode == 0, checked.stderr
    now = json.loads(run("effect", "show", "ship", "--json").stdout)["data"]
    assert now["state"] == "acknowledged"
    assert "is on origin/main" in now["evidence"]
    assert run("effect", "check", "ship").returncode == 4, "it is not in doubt any more"


def test_standfast_offers_the_check_of_a_doubt(run: Run, shop: Repository) -> None:
    """002-15."""
    found = in_doubt(run, shop)
    assert f"standfast effect check {found['id'][-6:]}" in run("status").stdout


def test_a_check_in_another_directory_is_refused_with_the_way_there(run: Run, shop: Repository, tmp_path: Path) -> None:
    in_doubt(run, shop)
    id = json.loads(run("effect", "list", "--in-doubt", "--json").stdout)["data"][0]["id"]
    other = run("effect", "check", id, "--yes", cwd=tmp_path)
    assert other.returncode == 2
    assert f"cd {shop.path} && standfast effect check {id[-6:]}" in other.stderr


def test_an_effect_without_a_ready_probe_is_left_to_a_person(run: Run) -> None:
    assert run("effect", "begin", "deploy", "to=prod", "--key", "d", "--for", "1ms").returncode == 0
    checked = run("effect", "check", "d", "--yes")
    assert checked.returncode == 2
    assert "standfast has no ready probe" in checked.stderr


def test_the_effect_of_a_python_program_is_checked_by_its_own_lookup(
    run: Run, shop: Repository, tmp_path: Path
) -> None:
    """002-7: the ready effects of `standfast.actions` are checked from a shell as well."""
    program = (
        "import os, signal, standfast\n"
        "from standfast.actions import git\n"
        "real = git._done\n"
        "def done(*words):\n"
        "    real(*words)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "git._done = done\n"
        "with standfast.session('fix'):\n"
        "    git.push('origin', 'fix', git.head())\n"
    )
    variables = {**os.environ, **AUTHOR, "STANDFAST_DATA_DIR": str(tmp_path / "data")}
    killed = subprocess.run([sys.executable, "-c", program], cwd=shop.path, env=variables, timeout=60)
    assert killed.returncode == -9
    (found,) = json.loads(run("effect", "list", "--in-doubt", "--json").stdout)["data"]
    shown = run("effect", "show", found["id"])
    assert f"standfast effect check {found['id'][-6:]}" in shown.stdout + shown.stderr
    checked = run("effect", "check", found["id"], "--yes")
    assert checked.returncode == 0, checked.stderr
    assert json.loads(run("effect", "show", found["id"], "--json").stdout)["data"]["state"] == "acknowledged"
