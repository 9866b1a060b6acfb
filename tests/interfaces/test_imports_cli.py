"""Importing from a shell: real processes, the agents' own directories, and the printed lines."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from standfast_prove.transcripts import SESSION, message, meta, night, rollout, user, write
from tests.interfaces.test_cli import on_a_terminal, run

THREAD = "0199812e-64f0-7f73-91fc-095dda01c36e"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def said(*words: str, home: Path, **variables: str) -> Any:
    """The `data` of a command that must succeed."""
    done = run(*words, "--json", home=home, cwd=None, input=None, **variables)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    return document["data"]


def test_without_a_path_the_agents_own_directories_are_read(home: Path, tmp_path: Path) -> None:
    """000-9, 000-17: one command, and the timeline answers about last Tuesday."""
    write(home / ".claude" / "projects" / "-a" / f"{SESSION}.jsonl", *night())
    write(rollout(tmp_path / "codex" / "sessions", THREAD), meta(THREAD), message("user", "why?", id="m1"))
    claude = said("import", "claude-code", home=home)
    assert (claude["messages"], claude["sessions"], claude["tool_calls"]) == (4, 1, 1)
    codex = said("import", "codex", home=home, CODEX_HOME=str(tmp_path / "codex"))
    assert (codex["messages"], codex["totals"]) == (1, {"new": 1, "records": 2, "bad": 0, "oversized": 0})
    again = run("import", "claude-code", home=home)
    assert "1 had nothing new" in again.stdout
    assert "next: standfast session list --all" in again.stderr
    told = run("timeline", "--at", "2026-11-10 03:00 UTC", "--all", home=home)
    assert "why is the build red?" in told.stdout
    assert "Bash make test (error)" in told.stdout
    listed = said("import", "list", home=home)
    assert [(one["agent"], one["state"], one["counts"]["messages"]) for one in listed] == [
        ("claude-code", "current", 4),
        ("codex", "current", 1),
    ]


def test_the_doctor_counts_records_that_were_not_understood(home: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *night(), user("u9", "end") | {"type": "hologram"})
    said("import", "claude-code", str(path), home=home)
    (found,) = [one for one in said("doctor", home=home) if one["id"] == "imports"]
    assert found["text"] == "1 sources read; records of unknown types, stored unchanged: claude-code hologram"


def test_a_dry_run_makes_not_even_a_store(home: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *night(), '{"broken', user("u9", "end") | {"type": "hologram"})
    done = run("import", "claude-code", str(path), "--dry-run", home=home)
    assert "would import 4 messages from 1 of 1 source" in done.stdout
    assert "1 lines could not be read and were stored unparsed" in done.stdout
    assert "stored unparsed, because their kind is unknown: hologram ×1" in done.stdout
    assert not (home / ".standfast").exists()


@pytest.mark.parametrize(
    ("words", "code", "fact"),
    [
        (("codex", "nowhere"), 3, "there is nothing at nowhere"),
        (("codex", "--since", "soonish"), 2, "'soonish' is not a time"),
        (("json",), 2, "Missing argument 'PATH'"),
        (("beads",), 3, "no issues of beads"),
        (("missing",), 2, "there is no command import missing"),
    ],
)
def test_an_invalid_import_prints_one_line(home: Path, words: tuple[str, ...], code: int, fact: str) -> None:
    done = run("import", *words, home=home)
    assert (done.returncode, done.stdout) == (code, "")
    assert fact in done.stderr


def test_a_terminal_sees_how_far_it_is_and_a_pipe_does_not(home: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *night(count=5))
    assert "100%" in on_a_terminal("import", "claude-code", str(path), home=home)
    assert "%" not in run("import", "claude-code", str(path), home=home).stderr


def test_a_killed_import_command_continues(home: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *night(count=1200))
    killed = run("import", "claude-code", str(path), home=home, STANDFAST_CRASH_AT="import.after_batch:2")
    assert killed.returncode == -signal.SIGKILL
    first = said("import", "list", home=home)[0]
    assert 0 < first["upto"] < first["size_bytes"]
    rest = said("import", "claude-code", str(path), home=home)
    assert rest["messages"] == 800
    assert rest["sources"][0]["counts"]["messages"] == 4800
