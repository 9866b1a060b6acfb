"""The demo really kills its processes, and the counts come from the server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import remembering


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "standfast", "demo", *arguments], capture_output=True, text=True, timeout=120
    )


def test_one_pull_request_with_standfast_and_two_with_a_json_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """002-10: the counter-example and its solution, in real processes. 000-45: without a key or a network."""
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    done = run("--json")
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(done.stdout)["data"]
    assert (data["ok"], data["pull_requests_standfast"], data["pull_requests_json_file"]) == (True, 1, 2)
    assert data["store"] == str(tmp_path / "standfast.db")


def test_piped_it_is_plain_text_and_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path))
    done = run()
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "pull requests on the server: 1" in done.stdout
    assert "pull requests on the server: 2" in done.stdout
    assert f"The session is stored in {tmp_path / 'standfast.db'}" in done.stdout
    assert "effect.acknowledged" in done.stdout


@pytest.mark.parametrize(("what", "plain"), [("destroy", 7), ("restore", 5)])
def test_each_order_is_charged_once_after_a_disaster(what: str, plain: int) -> None:
    """002-10: the agent's store is deleted or replaced by an old copy. The agent with a plain file charges twice."""
    with remembering.home() as home:
        done = remembering.run(home, "demo", what, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        data = json.loads(done.stdout)["data"]
        assert (data["ok"], data["charges_standfast"], data["charges_file"]) == (True, 4, plain)
        assert not [path for path in home.rglob("*") if path.is_file()]  # the demo removes its stores


def test_a_disaster_needs_a_directory_for_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    done = run("destroy", "--json")
    assert (done.returncode, json.loads(done.stderr)["error"]["code"]) == (2, "invalid_input")
