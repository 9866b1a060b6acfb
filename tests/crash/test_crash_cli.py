"""`standfast crash`: kills any agent at every crash point. A file outside the store shows what was sent twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from standfast.cli.crash import compared

CARELESS = """
import standfast
with standfast.session("job") as s:
    s.step("plan", lambda: 1)
    with open("server.log", "a") as log:
        log.write("POST /pulls\\n")
"""
CAREFUL = """
import standfast

def find() -> bool:
    return "POST" in open("server.log").read()

@standfast.effect("post", by=(), find=find)
def post() -> None:
    with open("server.log", "a") as log:
        log.write("POST /pulls\\n")

with standfast.session("job"):
    post()
"""
SHELL = f"{sys.executable} -m standfast once k -- sh -c 'echo sent >> server.log'"


def crash(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "standfast", "crash", "--count", "server.log", *words]
    environment = {**os.environ, "STANDFAST_DATA_DIR": str(tmp_path / "own")}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)


def test_an_agent_that_sends_without_an_effect_is_seen_twice(tmp_path: Path) -> None:
    """000-45: the control: with the same kills, the file has one line twice."""
    (tmp_path / "agent.py").write_text(CARELESS)
    done = crash(tmp_path, "--points", "session.*", "--json", "--", sys.executable, "agent.py")
    rows = json.loads(done.stdout)["data"]
    assert done.returncode == 1, done.stderr
    assert {row["killed_at"]: row["twice"] for row in rows}["session.before_end:1"] == 1
    assert not (tmp_path / "own").exists(), "the store of the caller is not used"


def test_an_agent_with_a_lookup_is_seen_once_at_every_point(tmp_path: Path) -> None:
    """000-45: after a kill at any crash point of its effect, the second run exits with 0."""
    (tmp_path / "agent.py").write_text(CAREFUL)
    done = crash(tmp_path, "--points", "effect.*", "--", sys.executable, "agent.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "twice at 0, missed something at 0; the second run did not exit 0 at 0" in done.stderr


@pytest.mark.parametrize(
    ("usual", "seen", "twice", "missing"),
    [
        ("a b", "a b", 0, 0),
        ("a", "a a", 1, 0),
        ("a b", "a a", 1, 1),
        ("a", "", 0, 1),
        ("key1", "key2", 0, 0),
        ("key1", "key2 key3", 1, 0),
        ("key1 key2", "key3", 0, 1),
    ],
)
def test_a_line_that_differs_in_each_run_counts_once(usual: str, seen: str, twice: int, missing: int) -> None:
    """000-45: lines that differ only in an idempotency key or a time count as one request."""
    assert compared(Counter(usual.split()), Counter(seen.split())) == (twice, missing)


def test_a_shell_script_that_uses_once_sends_once_or_asks(tmp_path: Path) -> None:
    """000-45, 000-36: if the effect is in doubt, the script exits with 6, and the report counts this."""
    done = crash(tmp_path, "--points", "effect.*_done", "--json", "--", "sh", "-c", SHELL)
    rows = json.loads(done.stdout)["data"]
    assert done.returncode == 0, done.stderr
    assert {row["killed_at"]: row["exit"] for row in rows} == {"effect.before_done:1": 6, "effect.after_done:1": 0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--", "true"), "no crash point"),
        (("--", "false"), "fails without a kill: exit 1"),
        (("--", "no-such-command"), "No such file"),
        (("--points", "efect.*", "--", "true"), "no crash point matches"),
    ],
)
def test_what_cannot_be_crashed_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = crash(tmp_path, *words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_file_that_has_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("mine\n")
    done = crash(tmp_path, "--", "true")
    assert (done.returncode, (tmp_path / "server.log").read_text()) == (2, "mine\n")
