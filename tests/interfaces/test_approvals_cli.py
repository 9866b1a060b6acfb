"""`standfast approve` in a real process on a real terminal, and every case in which it refuses."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.cli.approval_question import broken, visible
from standfast.errors import ApprovalRequired
from standfast_prove.planned import dispatch, plan, reword
from tests import commands
from tests.commands import MAIN

ON_ITS_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); " + MAIN
IN_THE_BACKGROUND = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "pid = os.fork()\n"
    "if pid: sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    "os.setpgid(0, 0)\n"
    "from standfast.cli import main; sys.exit(main())"
)
PROMPT = "? Type yes:"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def sf(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[standfast.Standfast]:
    monkeypatch.chdir(tmp_path)
    with standfast.open(data_dir=data, agent="agent:7") as store:
        yield store


def environment(data: Path, **variables: str) -> dict[str, str]:
    return {**os.environ, "STANDFAST_DATA_DIR": str(data), "USER": "ada", "LC_ALL": "C.UTF-8", **variables}


def run(*words: str, data: Path, input: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a new session, so that it has no terminal."""
    return commands.run(*words, environment=environment(data, **variables), cwd=data.parent, input=input)


class Person:
    """A person at a terminal of 60 columns that runs one command; stdout may be a pipe instead."""

    def __init__(self, *words: str, data: Path, code: str = ON_ITS_TERMINAL, **variables: str) -> None:
        self.controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            env=environment(data, **variables),
            cwd=data.parent,
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        os.close(terminal)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.controller, text.encode())

    def reads_until(self, text: str, timeout_s: float = 60) -> str:
        end = time.monotonic() + timeout_s
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.controller], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.controller, 65536).decode().replace("\r\n", "\n")
                except OSError:
                    break
        assert text in self.seen, (self.seen, self.process.communicate())
        return self.seen

    def leaves(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        os.close(self.controller)
        return self.process.returncode, out, err


def asked(sf: standfast.Standfast, intent: Any = None, **more: Any) -> str:
    effect = plan(sf, intent, **more)
    with pytest.raises(ApprovalRequired) as caught:
        dispatch(sf, effect, why="the test names it")
    return caught.value.approval_id


def test_a_person_sees_every_byte_and_approves(sf: standfast.Standfast, data: Path) -> None:
    intent = {"body": "line one\nline two \u202e\u200bevil", "branch": "fix-42"}
    id = asked(sf, intent, context={"cwd": "/srv/app"})
    person = Person("approve", id[-6:], "--why", "read it all", data=data)
    seen = person.reads_until(PROMPT)
    exact = '{"body":"line one\\nline two \\u202e\\u200bevil","branch":"fix-42"}'
    assert "".join(line[2:] for line in seen.splitlines() if line.startswith("│ ")) == exact
    canonical = sf.approvals.question(id).intent or ""
    assert f"{len(canonical.encode())} bytes, 2 characters outside ASCII" in seen
    assert (sf.approvals.get(id).question_hash or "?") in "".join(seen.split())
    for said in ("github.open_pr", "agent:7", "the test names it", "/srv/app", "expires"):
        assert said in seen
    assert "\u202e" not in seen
    person.type("yes\n")
    code, out, err = person.leaves()
    assert (code, out, err) == (0, f"{id} granted\n", "")
    found = sf.approvals.get(id)
    assert (found.state, found.rationale, found.method) == ("granted", "read it all", "terminal")
    assert re.fullmatch(r"ada@.*:pts/\d+", found.approver or "")


@pytest.mark.parametrize("answer", ["\n", "y\n", "no\n", "yes please\n", "\x04"])
def test_any_answer_except_yes_leaves_the_request_waiting(sf: standfast.Standfast, data: Path, answer: str) -> None:
    id = asked(sf)
    person = Person("approve", id, data=data)
    person.reads_until(PROMPT)
    person.type(answer)
    code, out, err = person.leaves()
    assert (code, out) == (5, "")
    assert f"nothing was recorded: {id} still waits" in err
    assert sf.approvals.get(id).state == "requested"


def test_what_was_typed_ahead_is_no_answer(sf: standfast.Standfast, data: Path) -> None:
    id = asked(sf)
    person = Person("approve", id, "--yes", data=data)
    person.type("yes\nyes\n")
    person.reads_until(PROMPT)
    person.type("no\n")
    assert person.leaves()[0] == 5
    assert sf.approvals.get(id).state == "requested"


def test_ctrl_c_records_nothing(sf: standfast.Standfast, data: Path) -> None:
    id = asked(sf)
    person = Person("approve", id, data=data)
    person.reads_until(PROMPT)
    person.type("\x03")
    assert person.leaves()[0] == 130
    assert sf.approvals.get(id).state == "requested"


def test_a_person_denies_with_a_reason(sf: standfast.Standfast, data: Path) -> None:
    id = asked(sf)
    person = Person("deny", id, "--why", "not on a Friday", "--json", data=data)
    person.reads_until("Deny? Type yes:")
    person.type("yes\n")
    code, out, _ = person.leaves()
    document = json.loads(out)
    assert (code, document["data"]["state"], document["data"]["rationale"]) == (0, "denied", "not on a Friday")
    receipt = run("verify", json.dumps(document["data"]["receipt"]), data=data)
    assert receipt.returncode == 0, receipt.stderr


def test_the_approved_bytes_cannot_imitate_our_labels(sf: standfast.Standfast, data: Path) -> None:
    fake = "x" * 31 + "Approve? Type yes: "
    id = asked(sf, {"body": fake}, tool="rm")
    person = Person("approve", id, data=data)
    seen = person.reads_until("Approve? Type yes: ")
    assert [line for line in seen.splitlines() if line.startswith("Approve?")] == [seen.splitlines()[-1]]
    person.type("no\n")
    person.leaves()


@pytest.mark.parametrize("command", ["approve", "deny"])
@pytest.mark.parametrize("more", [(), ("--yes",)])
def test_without_a_terminal_it_is_refused(
    sf: standfast.Standfast, data: Path, command: str, more: tuple[str, ...]
) -> None:
    id = asked(sf)
    done = run(command, id, *more, data=data, input="yes\n")
    assert (done.returncode, done.stdout) == (5, "")
    assert "there is no terminal here" in done.stderr
    assert sf.approvals.get(id).state == "requested"


@pytest.mark.parametrize(
    ("variable", "agent"),
    [("CLAUDECODE", "claude-code"), ("CODEX_THREAD_ID", "codex"), ("GEMINI_CLI", "gemini-cli"), ("AI_AGENT", "agent")],
)
def test_an_agent_is_refused_even_on_a_terminal(sf: standfast.Standfast, data: Path, variable: str, agent: str) -> None:
    id = asked(sf)
    person = Person("approve", id, "--json", data=data, **{variable: "1"})
    code, out, err = person.leaves()
    error = json.loads(err)["error"]
    assert (code, out, error["code"]) == (5, "", "agent_present")
    assert f"the environment of {agent}" in error["message"]
    assert sf.approvals.get(id).state == "requested"


def test_a_background_job_is_refused_and_not_stopped_by_the_terminal(sf: standfast.Standfast, data: Path) -> None:
    id = asked(sf)
    code, _, err = Person("approve", id, data=data, code=IN_THE_BACKGROUND).leaves()
    assert code == 5
    assert "in the background" in err


def test_a_request_that_cannot_be_answered_is_refused_before_the_question(sf: standfast.Standfast, data: Path) -> None:
    answered = asked(sf)
    sf.approvals.deny(answered, approver="bob")
    effect = plan(sf, {"body": "harmless"})
    changed = sf.approvals.request(effect).id
    reword(sf, effect, {"body": "other"})
    brief = sf.approvals.request(plan(sf), for_="1us").id
    for id, code, words in (
        (answered, 4, "already denied by bob"),
        (changed, 4, "was changed after"),
        (brief, 4, "expired at"),
        ("zzzzzz", 3, "there is no approval"),
    ):
        got, out, err = Person("approve", id, data=data).leaves()
        assert (got, out) == (code, "")
        assert words in err


# -- the rest of the commands ------------------------------------------------------------------------


def test_ask_list_show_and_wait_on_the_command_line(sf: standfast.Standfast, data: Path) -> None:
    effect = plan(sf, {"title": "t"}, key="deploy:42")
    made = json.loads(run("approval", "request", "deploy:42", "--why", "w", "--for", "2h", "--json", data=data).stdout)
    id = made["data"]["id"]
    assert made["data"]["effect_id"] == effect
    assert made["data"]["receipt"]["seq"] > 0
    listed = json.loads(run("approval", "--json", data=data).stdout)
    assert [one["id"] for one in listed["data"]] == [id]
    assert listed["next"] is None
    shown = json.loads(run("approval", "show", id[-6:], "--json", data=data).stdout)["data"]
    assert (shown["intent"], shown["exact"], shown["effect_key"]) == ('{"title":"t"}', True, "deploy:42")
    text = run("approval", "show", id, data=data)
    assert '│ {"title":"t"}' in text.stdout
    assert f"next: standfast approve {id[-6:]}" in text.stderr
    waited = run("approval", "wait", id, "--timeout", "10ms", data=data)
    assert waited.returncode == 5
    sf.approvals.deny(id, approver="bob", rationale="no")
    waited = run("approval", "wait", id, data=data)
    assert (waited.returncode, waited.stdout) == (5, f"{id} denied by bob: no\n")
    assert "nothing waits for approval" in run("approval", "list", data=data).stderr
    assert json.loads(run("approval", "list", "--state", "any", "--json", data=data).stdout)["data"][0]["id"] == id
    again = json.loads(run("approval", "request", effect, "--again", "--json", data=data).stdout)["data"]
    sf.approvals.grant(again["id"], approver="bob")
    assert run("approval", "wait", again["id"], data=data).returncode == 0


def test_gates_on_the_command_line(sf: standfast.Standfast, data: Path) -> None:
    added = run("gate", "add", "git push*", "--why", "main is protected", "--json", data=data)
    id = json.loads(added.stdout)["data"]["id"]
    assert run("gate", "add", "rm *", "--need", "effect", "--global", data=data).returncode == 0
    for command, code in (("cd app && git push", 5), ("rm -r build", 4), ("git pull", 0)):
        assert run("gate", "test", command, data=data).returncode == code
    assert run("gate", "add", "git push*", "--need", "effect", data=data).returncode == 4
    assert run("gate", "pause", "git push*", "--for", "2h", "--why", "release", data=data).returncode == 0
    passed = run("gate", "test", "git push", data=data)
    assert (passed.returncode, "paused until" in passed.stderr) == (0, True)
    assert run("gate", "resume", "git push*", data=data).returncode == 0
    (data / "gates.json").unlink()
    listed = run("gate", "list", data=data)
    assert "gates.json was updated from the store" in listed.stderr
    assert (data / "gates.json").exists()
    refused = run("gate", "remove", id, data=data, CLAUDECODE="1")
    assert refused.returncode == 5
    assert "the environment of claude-code" in refused.stderr
    assert run("gate", "remove", "git push*", data=data).returncode == 0
    assert run("gate", "test", "git push", data=data).returncode == 0
    assert run("gate", "remove", "git push*", data=data).returncode == 3


def test_looking_makes_no_store(tmp_path: Path) -> None:
    for words in (("gate", "test", "ls"), ("approval", "show", "zzzzzz")):
        done = run(*words, data=tmp_path / "data")
        assert done.returncode == 3, done.stderr
    lists = ["approval list", "gate list", "timeline", "search x", "mail dead", "event consumers"]
    for words in (*lists, "decision caught", "lock"):
        done = run(*words.split(), "--json", data=tmp_path / "data")
        assert (done.returncode, json.loads(done.stdout)["data"]) == (0, []), done.stderr  # an empty list is no error
    assert not (tmp_path / "data").exists()


def test_what_a_terminal_would_hide_or_obey_is_written_out() -> None:
    hidden = "a\x1b[2J\x7f\x85\u00ad\u200b\u202e\u2066\u3164\ufe0f\U000e0041\U000e0100é漢"
    assert visible(hidden) == (
        "a\\u001b[2J\\u007f\\u0085\\u00ad\\u200b\\u202e\\u2066\\u3164\\ufe0f\\udb40\\udc41\\udb40\\udd00é漢"
    )
    assert json.loads(f'"{visible(hidden)}"') == hidden


def test_long_text_is_broken_without_losing_a_character() -> None:
    text = "漢字" * 100 + "abc"
    pieces = list(broken(text, 40))
    assert "".join(pieces) == text
    assert len(pieces) > 10
    assert list(broken(text, None)) == [text]
