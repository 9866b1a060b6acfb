"""The demo does what it says: real kills, the server's own counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "standfast", "demo", *arguments], capture_output=True, text=True, timeout=120
    )


def test_one_pull_request_with_standfast_and_two_with_a_json_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """002-10: the counter-example and its resolution, live. 000-45: no key, no network."""
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    done = run("--json")
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(done.stdout)["data"]
    assert (data["ok"], data["pull_requests_standfast"], data["pull_requests_json_file"]) == (True, 1, 2)
    assert data["store"] == str(tmp_path / "standfast.db")


def test_piped_it_is_plain_text_and_tells_where_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path))
    done = run()
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "pull requests on the server: 1" in done.stdout
    assert "pull requests on the server: 2" in done.stdout
    assert f"It is remembered in {tmp_path / 'standfast.db'}" in done.stdout
    assert "effect.acknowledged" in done.stdout
