"""When an agent that died during a known action starts again, it reads whether the action happened."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.actions.shell_text import known_actions
from standfast.cli import app
from standfast.clock import ManualClock
from standfast.interchange.hooks import unanswered
from standfast.interchange.hooks.record import Hooks
from tests.hooks import PATIENT, bash, enter, environment, heard, payload
from tests.repositories import AUTHOR, Repository

CALLS = {
    "claude-code": ("PreToolUse", "Bash"),
    "codex": ("PreToolUse", "shell"),
    "gemini-cli": ("BeforeTool", "run_shell_command"),
    "opencode": ("PreToolUse", "bash"),
}


@pytest.fixture
def shop(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def an_hour_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository whose commit is older than the calls of the test."""
    monkeypatch.setenv("GIT_COMMITTER_DATE", f"@{int(time.time()) - 3600} +0000")
    return Repository(tmp_path)


def told(agent: str, given: dict[str, Any], tmp_path: Path) -> str:
    ended = enter(agent, given, tmp_path / "data", program=("-c", PATIENT), **AUTHOR)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)["hookSpecificOutput"]["additionalContext"] if ended.stdout else ""
    return str(found)


def called(agent: str, command: str, shop: Repository, tmp_path: Path) -> None:
    event, tool = CALLS[agent]
    given = {**bash(event, command, id=None if agent == "gemini-cli" else "t1", cwd=shop.path), "tool_name": tool}
    told(agent, payload("SessionStart", cwd=shop.path, source="startup"), tmp_path)
    told(agent, given, tmp_path)


@pytest.mark.parametrize("agent", CALLS)
def test_an_agent_reads_whether_its_push_arrived(agent: str, shop: Repository, tmp_path: Path) -> None:
    """001-34, 002-11: the resumed agent reads the observation and its author."""
    called(agent, "git push origin main 2>&1 | tail -3", shop, tmp_path)
    shop("push", "-q", "origin", "main")
    read = told(agent, payload("SessionStart", cwd=shop.path, source="resume"), tmp_path)
    assert "Observed by standfast" in read
    seen = f"({shop('rev-parse', 'HEAD')[:7]} is on origin/main)"
    assert f"- `git push origin main 2>&1 | tail -3` did arrive {seen}" in read
    again = told(agent, payload("SessionStart", cwd=shop.path, source="resume"), tmp_path)
    assert "did arrive" not in again, "it is known, and shown once"


def test_a_young_call_that_is_not_there_may_be_on_its_way(shop: Repository, tmp_path: Path) -> None:
    """002-15: a negative answer of the probe counts only after the time to settle."""
    called("claude-code", "git push origin main", shop, tmp_path)
    read = told("claude-code", payload("SessionStart", cwd=shop.path, source="resume"), tmp_path)
    assert "may or may not have arrived (origin/main is not there, but it may still be on its way)" in read


def test_a_call_that_is_not_there_after_the_time_to_settle_did_not_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001-34, 002-11: the agent died a minute ago, while it pushed an older commit."""
    shop = an_hour_old(tmp_path, monkeypatch)
    a_minute_ago = time.time_ns() // 1000 - 60_000_000
    with standfast.open(data_dir=tmp_path / "data") as sf:
        for given in (
            payload("SessionStart", cwd=shop.path, source="startup"),
            bash("PreToolUse", "git push origin main", cwd=shop.path),
        ):
            Hooks(sf._store).keep(heard(given, at_us=a_minute_ago))
    read = told("claude-code", payload("SessionStart", cwd=shop.path, source="resume"), tmp_path)
    assert "- `git push origin main` did not arrive (origin/main is not there)" in read
    again = told("claude-code", payload("SessionStart", cwd=shop.path, source="resume"), tmp_path)
    assert "did not arrive" not in again, "it is known, and shown once"


def test_a_chain_of_commit_and_push_is_read_in_order(shop: Repository, tmp_path: Path) -> None:
    """001-34."""
    shop.write("two")
    called("claude-code", "git add -A && git commit -m 'two' && git push origin main", shop, tmp_path)
    shop("commit", "-q", "-a", "-m", "two")
    shop("push", "-q", "origin", "main")
    read = told("claude-code", payload("SessionStart", cwd=shop.path, source="resume"), tmp_path)
    assert f"did arrive ({shop('rev-parse', 'HEAD')[:7]} is on origin/main)" in read


def test_a_once_in_doubt_of_the_agent_is_looked_up_by_its_recorded_facts(shop: Repository, tmp_path: Path) -> None:
    """001-34: `standfast once` of an agent recorded which commit it pushed; the branch has moved since."""
    told("claude-code", payload("SessionStart", cwd=shop.path, source="startup"), tmp_path)
    hook = shop.path / ".git/hooks/pre-push"
    hook.write_text("#!/bin/sh\nkill -9 $PPID\n")
    hook.chmod(0o755)
    variables = {**environment(tmp_path / "data"), **AUTHOR, "STANDFAST_SESSION": "claude-code:s1"}
    words = [sys.executable, "-m", "standfast", "once", "ship", "--", "git", "push", "origin", "main"]
    assert subprocess.run(words, cwd=shop.path, env=variables, capture_output=True, timeout=60).returncode == 137
    hook.unlink()
    pushed = shop("rev-parse", "HEAD")
    shop("push", "-q", "origin", "main")
    shop.commit("later")
    read = told("claude-code", payload("SessionStart", cwd=shop.path, source="resume"), tmp_path)
    assert f"- `git push origin main` did arrive ({pushed[:7]} is on origin/main)" in read


def test_calls_at_a_remote_that_does_not_answer_share_the_deadline(
    shop: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """002-15: after the deadline the outcome of each call is unknown, and the agent reads that it has to check."""
    shop("remote", "set-url", "origin", "ssh://example.invalid/x")
    slow = tmp_path / "slow.sh"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(slow))
    known = tuple(known_actions("git push origin main", str(shop.path)))
    calls = [unanswered.Call(f"t{n}", "s1", "git push origin main", 0, known * 3) for n in range(4)]
    seen = unanswered.observations(calls, 10**15, 0.4)
    assert [one.happened for one in seen] == [None] * 4
    for one in seen:
        assert one.line.startswith("`git push origin main` may or may not have arrived (")
        assert one.line.endswith("look before you repeat it")


def test_an_answered_call_and_an_unknown_one_are_not_looked_up(shop: Repository, tmp_path: Path) -> None:
    called("claude-code", "git push origin main", shop, tmp_path)
    answer = bash("PostToolUse", "git push origin main", cwd=shop.path)
    told("claude-code", {**answer, "tool_response": {"stdout": "", "stderr": ""}}, tmp_path)
    told("claude-code", bash("PreToolUse", "./release.sh && git push origin main", id="t2", cwd=shop.path), tmp_path)
    assert "Observed" not in told("claude-code", payload("SessionStart", cwd=shop.path, source="resume"), tmp_path)


def test_an_observation_is_journalled_once_as_seen(sf: standfast.Standfast, shop: Repository) -> None:
    """001-34: the author of the observation is standfast, on both engines; a known answer is not probed again."""
    now_us = sf.read(lambda tx: tx.now_us())
    kept = Hooks(sf._store).keep(heard(bash("PreToolUse", "git push origin main", cwd=shop.path), at_us=now_us))
    (call,) = unanswered.waiting(sf._store, kept.session_id, str(shop.path), now_us)
    shop("push", "-q", "origin", "main")
    seen = unanswered.observations([call], now_us, 60.0)
    unanswered.keep(sf._store, seen)
    (event,) = [one for one in sf.journal.about(call.subject) if one.type == "call.observed"]
    assert (event.source, event.state, event.summary) == ("seen", "arrived", seen[0].line)
    assert unanswered.waiting(sf._store, kept.session_id, str(shop.path), now_us) == []


def test_the_recovery_report_names_what_was_never_answered(tmp_path: Path, shop: Repository) -> None:
    """001-34: before the agent resumes, a person reads which of its calls has no answer."""
    clock = ManualClock(time.time_ns() // 1000)  # after the commit
    with standfast.open(tmp_path / "s.db", data_dir=tmp_path, clock=clock) as sf:
        for given in (
            payload("SessionStart", cwd=shop.path),
            bash("PreToolUse", "git push origin main", cwd=shop.path),
            bash("PreToolUse", "ls", id="t2", cwd=shop.path),
        ):
            Hooks(sf._store).keep(heard(given, at_us=clock.now_us()))
        clock.advance(2 * 3600)
        (item,) = sf.recovery.report(everywhere=True).of("session_crashed")
        assert item.what.endswith('lease ran out; "git push origin main" was never answered')
        shop("push", "-q", "origin", "main")
        calls = unanswered.waiting(sf._store, item.id, str(shop.path), clock.now_us())
        seen = unanswered.observations(calls, clock.now_us(), 60.0)
        unanswered.keep(sf._store, seen)
        (item,) = sf.recovery.report(everywhere=True).of("session_crashed")
        assert item.what.endswith(f"lease ran out; standfast saw: {seen[0].line}")
        assert "did arrive" in item.what


@pytest.mark.parametrize("arrived", [True, False])
def test_the_screen_shows_what_the_recovery_report_shows(
    tmp_path: Path, arrived: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-34: `standfast` has the same line about the call as `sf.recovery.report()`."""
    shop = an_hour_old(tmp_path, monkeypatch)
    clock = ManualClock(time.time_ns() // 1000 - 3500 * 1_000_000)
    with standfast.open(data_dir=tmp_path / "data", clock=clock) as sf:
        given = bash("PreToolUse", "git push origin main", cwd=shop.path)
        kept = Hooks(sf._store).keep(heard(given, at_us=clock.now_us()))
        if arrived:
            shop("push", "-q", "origin", "main")
        clock.advance(60)
        calls = unanswered.waiting(sf._store, kept.session_id, str(shop.path), clock.now_us())
        (seen,) = unanswered.observations(calls, clock.now_us(), 60.0)
        unanswered.keep(sf._store, [seen])
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))
    with standfast.open() as sf:
        (item,) = sf.recovery.report(everywhere=True).of("session_crashed")
    assert app.run(["status", "--all"]) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert f"standfast saw: `git push origin main` did {'' if arrived else 'not '}arrive" in item.what
    assert item.what in screen


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("git push origin main", ["git push"]),
        ("cd sub && git push origin main 2>&1 | tail -5", ["git push"]),
        ("git add . && git commit -m 'a b' && git push", ["git commit", "git push"]),
        ("git push origin main || true", []),
        ("git push origin main &", []),
        ("git push origin $BRANCH", []),
        ("git push origin main > log", []),
        ("(git push origin main)", []),
        ("git push origin main | sh", []),
        ("./release.sh && git push origin main", []),
        ("git commit -m 'open", []),
        ("echo git push origin main", []),
        ("", []),
    ],
)
def test_only_unambiguous_text_is_read(text: str, names: list[str], tmp_path: Path) -> None:
    """002-15: an unknown command is not guessed."""
    assert [known.action.name for known in known_actions(text, str(tmp_path))] == names
