"""Commands that answer one question each: real processes on a store of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle
from standfast.cli.show import SCREENS
from standfast.clock import DAY_US, HOUR_US, SYSTEM, ManualClock, SystemClock, iso
from standfast_prove.faults.daemons import until
from tests.interfaces.test_cli import MAIN, environment, run

MESSAGES: tuple[tuple[str, Any], ...] = (
    ("user", "fix the parser"),
    (
        "assistant",
        [
            {"type": "thinking", "thinking": "unsaid"},
            {"type": "text", "text": "I look first."},
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "git status"}},
        ],
    ),
    ("user", [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "On branch main"}]}]),
    ("assistant", {"content": None, "tool_calls": [{"function": {"name": "find", "arguments": '{"query": "cats"}'}}]}),
    ("tool", {"role": "tool", "tool_call_id": "c1", "content": "\n".join(f"cat {n}" for n in range(7))}),
    ("ai", {"type": "ai", "data": {"content": "stored", "tool_calls": [{"name": "look", "args": {"id": 7}}]}}),
    ("tool", {"lc": 1, "type": "constructor", "kwargs": {"content": "dumped", "type": "tool"}}),
    ("assistant", {"odd": True}),
)
CONVERSATION = """\
user: fix the parser
assistant: I look first.
  → Bash: git status
  ← On branch main
  → find: cats
  ← cat 0
    cat 1
    cat 2
    cat 3
    cat 4
    … 2 more lines
assistant: stored
  → look: {"id": 7}
  ← dumped
assistant: {"odd": true}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@contextmanager
def opened(home: Path, clock: SystemClock = SYSTEM) -> Iterator[standfast.Standfast]:
    settings = config.load(data_dir=home / ".standfast", cwd=home, actor="coder")
    with handle.connect(settings, clock=clock) as sf:
        yield sf


def printed(*words: str, home: Path) -> str:
    """The stdout of a command that must succeed."""
    done = run(*words, home=home, TZ="UTC")
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(*words: str, home: Path) -> tuple[int, str]:
    done = run(*words, home=home)
    assert done.stdout == ""
    return done.returncode, done.stderr


def fail(home: Path, key: str, why: str) -> None:
    with opened(home) as sf:
        record = sf.sessions.open(key).record
        sf.sessions.end(record.id, "failed", reason=why)


def test_a_session_is_shown_as_a_conversation(home: Path) -> None:
    """Messages of OpenAI, Claude and LangChain: each text with its author, each tool call, each result."""
    with opened(home, ManualClock(SYSTEM.now_us() - HOUR_US)) as sf, sf.session("fix-42") as s:
        for role, content in MESSAGES:
            s.say(role, content)
    shown = printed("session", "show", "fix-42", home=home)
    assert shown.endswith(f", message 1\n{CONVERSATION}")


def test_show_finds_a_row_by_id_the_end_of_it_or_its_key(home: Path) -> None:
    """003-40: without an ID and without a store, `show` prints the first screen with the next command."""
    first = run("show", home=home)
    assert (first.returncode, "next: standfast demo" in first.stderr) == (0, True)
    with opened(home) as sf:
        task = sf.tasks.add("fix the parser")
        loop = sf.loops.add("nightly", ["true"], every="1h")
        sf.sessions.open("fix-42")
        sf.sessions.open("nightly")
    for name in (task.id, task.id[-6:]):
        assert "fix the parser" in printed("show", name, home=home)
    assert "fix-42 (ses_" in printed("show", "fix-42", home=home)
    code, said = refused("show", "nightly", home=home)
    assert (code, "names 2 things" in said, f"standfast loop show {loop.id}" in said) == (2, True, True)
    code, said = refused("show", "nothing-like-it", home=home)
    assert (code, "standfast search nothing-like-it" in said) == (3, True)


@pytest.mark.parametrize("screen", sorted(set(SCREENS.values())))
def test_the_screen_of_each_kind_is_a_command(screen: str, capsys: pytest.CaptureFixture[str]) -> None:
    from standfast.cli import app

    assert app.run([*screen.split(), "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: standfast {screen}")


def test_a_failed_run_has_the_last_line_of_stderr_and_its_output(home: Path) -> None:
    """000-18, 002-18: standfast stores the reason why a run failed, and shows the run's output."""
    script = "echo begun; echo first >&2; echo 'the disk is full' >&2; exit 3"
    printed("loop", "add", "nightly", "--cron", "0 3 * * *", "--", "sh", "-c", script, home=home)
    assert refused("loop", "output", "nightly", home=home) == (
        3,
        "standfast: no run of nightly has started\n  standfast loop runs nightly\n",
    )
    printed("daemon", "start", home=home)
    try:
        printed("loop", "run", "nightly", home=home)
        with opened(home) as sf:
            until(lambda: [one for one in sf.runs.list() if one.state == "failed"])
            (failed,) = sf.runs.list()
    finally:
        run("daemon", "stop", "--now", home=home)
    assert failed.reason == "exit 3: the disk is full"
    assert "exit 3: the disk is full" in printed("loop", "runs", "--state", "failed", home=home)
    assert printed("loop", "output", "nightly", home=home) == "begun\nfirst\nthe disk is full\n"
    assert printed("loop", "output", failed.id[-6:], "--stdout", home=home) == "begun\n"
    assert printed("show", failed.id, home=home).startswith("begun\n")
    data = json.loads(printed("loop", "output", "nightly", "--stderr", "--json", home=home))["data"]
    assert (data["id"], data["stderr"], "stdout" in data) == (failed.id, "first\nthe disk is full\n", False)
    assert refused("loop", "output", "nope", home=home)[0] == 3


def test_loop_runs_until_a_time(home: Path) -> None:
    """002-18: the command lists the slots up to this time, and none after it."""
    night_us = (SYSTEM.now_us() // DAY_US - 3) * DAY_US + 3 * HOUR_US
    clock = ManualClock(night_us - HOUR_US)
    with opened(home, clock) as sf:
        sf.loops.add("nightly", ["true"], cron="0 3 * * *", zone="UTC")
        for _ in range(2):
            clock.advance("24h")
            sf.loops.fire_due()
    between = iso(night_us + HOUR_US)
    listed = json.loads(printed("loop", "runs", "nightly", "--until", between, "--json", home=home))["data"]
    assert [one["slot_us"] for one in listed] == [night_us]
    listed = json.loads(printed("loop", "runs", "nightly", "--since", between, "--json", home=home))["data"]
    assert night_us not in [one["slot_us"] for one in listed]
    assert night_us + DAY_US in [one["slot_us"] for one in listed]
    assert refused("loop", "runs", "--until", "whenever", home=home)[0] == 2


def test_status_follow_prints_each_new_item_once(home: Path) -> None:
    """000-17: a new item that needs a person is printed as one line."""
    fail(home, "old", "the first")
    following = subprocess.Popen(
        [sys.executable, "-c", MAIN, "status", "--follow", "--jsonl"],
        env=environment(home), cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert following.stdout is not None
    try:
        assert json.loads(following.stdout.readline())["session"] == "old"
        fail(home, "new", "the second")
        assert json.loads(following.stdout.readline())["session"] == "new"
    finally:
        os.kill(following.pid, signal.SIGINT)
        rest, said = following.communicate()
    assert (rest, "Traceback" in said) == ("", False)


def test_a_timeline_is_written_as_a_page(home: Path) -> None:
    """000-17, 000-18: one page for a person without the store; what was recorded cannot run in it."""
    fail(home, "build", "<script>alert(1)</script>")
    assert printed("timeline", "--since", "1h", "--html", "night.html", home=home) == "night.html\n"
    page = (home / "night.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<td>seen</td>" in page
    assert "session.failed" in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert printed("timeline", "--since", "1h", "--html", "-", home=home).startswith("<!doctype html>")
    code, said = refused("timeline", "--html", "other.html", "--json", home=home)
    assert (code, "only one of" in said, (home / "other.html").exists()) == (2, True, False)
    assert refused("timeline", "--html", "absent/night.html", home=home)[0] != 0


def test_sql_takes_parameters_and_prints_times(home: Path) -> None:
    """002-18: a value is passed as a parameter, never as part of the query's text."""
    fail(home, "it's", "no")
    query = "SELECT key, created_us FROM session WHERE key = :key AND created_us > :n"
    words = ("sql", query, "--param", "key=it's", "--param", "n=0", "--jsonl")
    raw, timed = (json.loads(printed(*words, *more, home=home)) for more in ((), ("--times",)))
    assert timed == {"key": "it's", "created_us": iso(raw["created_us"])}
    assert refused("sql", query, "--param", "key=x", home=home) == (
        2,
        "standfast: the query has the parameter :n\n  --param n=VALUE\n",
    )
    assert refused("sql", "SELECT 1", "--param", "key=x", home=home)[0] == 2
    assert printed("sql", "SELECT ':no' AS text", "--jsonl", home=home) == '{"text": ":no"}\n'


def test_a_webhook_that_waits_is_in_status(home: Path) -> None:
    """000-17: only a webhook that was received a while ago is listed."""
    with opened(home, ManualClock(SYSTEM.now_us() - HOUR_US)) as sf:
        sf.webhooks.receive("stripe", "evt_1", {"amount": 5})
    with opened(home) as sf:
        sf.webhooks.receive("stripe", "evt_2", {"amount": 5})
    shown = printed("status", home=home)
    assert "webhook evt_1 of stripe is not handled" in shown
    assert "evt_2" not in shown
    assert "evt_1" in printed("status", "--problems", home=home)
    printed("webhook", "claim", "--source", "stripe", home=home)
    assert "evt_1" not in printed("status", home=home)
