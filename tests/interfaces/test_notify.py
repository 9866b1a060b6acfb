"""The notify command: it starts once, after the commit, and no caller waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast.core import notices
from standfast.errors import ApprovalRequired
from standfast_prove.planned import dispatch, plan

WRITER = """
import json, os, sys
about = {name: value for name, value in os.environ.items() if name.startswith("STANDFAST_")}
text = json.dumps({"variables": about, "stdin": json.load(sys.stdin), "session": os.getsid(0), "parent": os.getppid()})
path = os.path.join(sys.argv[1], str(os.getpid()))
open(path + ".part", "w").write(text)
os.rename(path + ".part", path + ".json")
"""


class Inbox:
    """The file where the notify command of a test stores its input."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.command = [sys.executable, "-c", WRITER, str(directory)]

    def wait(self, count: int = 1) -> list[dict[str, object]]:
        """Wait for `count` inputs and return them. The time limit allows for a busy machine."""
        end = time.monotonic() + 30
        while len(found := sorted(self.directory.glob("*.json"))) < count:
            assert time.monotonic() < end, f"{len(found)} notices, not {count}"
            time.sleep(0.01)
        return [json.loads(path.read_text()) for path in found]


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "inbox")


@pytest.fixture
def sf(engine_url: str, tmp_path: Path, inbox: Inbox) -> Iterator[standfast.Standfast]:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "config.toml").write_text(f"notify = {json.dumps(inbox.command)}\n")
    with standfast.open(engine_url, data_dir=tmp_path / "data") as store:
        yield store


def test_a_request_starts_the_command_once(sf: standfast.Standfast, inbox: Inbox) -> None:
    effect = plan(sf, tool="deploy\x1b[31m")
    for _ in range(3):
        with pytest.raises(ApprovalRequired):
            dispatch(sf, effect)
    sf.approvals.request(effect)
    (found,) = sf.approvals.list()
    (told,) = inbox.wait()
    about = {
        "event": "approval.requested",
        "subject": found.id,
        "summary": told["stdin"]["summary"],  # type: ignore[index]
        "hint": f"standfast approve {found.id[-6:]}",
    }
    assert told["stdin"] == about
    variables = told["variables"]
    assert isinstance(variables, dict)
    assert {name: variables[f"STANDFAST_{name.upper()}"] for name in about} == about
    assert "needs approval" in about["summary"]
    assert "\x1b" not in about["summary"]
    assert len(about["summary"]) <= notices.SUMMARY_MAX
    assert told["session"] != os.getsid(0)
    assert told["parent"] != os.getpid()
    assert len(list(inbox.directory.iterdir())) == 1


def test_one_request_starts_the_command_once(sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(notices, "start", lambda _, about: started.append(about["STANDFAST_SUBJECT"]))
    effect = plan(sf)
    for _ in range(3):
        with pytest.raises(ApprovalRequired):
            dispatch(sf, effect)
    made = sf.approvals.request(effect)
    assert started == [made.id]


def test_inside_a_transaction_it_waits_for_the_commit(sf: standfast.Standfast, inbox: Inbox) -> None:
    lost, kept = plan(sf), plan(sf)

    def rolled_back() -> None:
        with sf.transaction() as tx:
            tx.approvals.request(lost)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        rolled_back()
    with sf.transaction() as tx:
        made = tx.approvals.request(kept)
        assert list(inbox.directory.iterdir()) == []
    (told,) = inbox.wait()
    assert told["stdin"]["subject"] == made.id  # type: ignore[index]


def test_any_feature_may_notify(sf: standfast.Standfast, inbox: Inbox) -> None:
    notices.tell(sf._store, "effect.in_doubt", "eff_x", "two\nlines", "standfast effect resolve x")
    (told,) = inbox.wait()
    assert told["stdin"] == {
        "event": "effect.in_doubt",
        "subject": "eff_x",
        "summary": "two lines",
        "hint": "standfast effect resolve x",
    }


def test_what_a_notice_does_sends_no_notices(
    sf: standfast.Standfast, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDFAST_EVENT", "approval.requested")
    sf.approvals.request(plan(sf))
    monkeypatch.delenv("STANDFAST_EVENT")
    sf.approvals.request(plan(sf))
    assert len(inbox.wait()) == 1


@pytest.mark.parametrize(
    "command",
    [
        ("/nonexistent/program",),
        ("/bin/sh", "-c", "sleep 60"),
        ("/bin/sh", "-c", "exit 3"),
        ("/bin/sh", "-c", "while :; do echo noise; echo noise >&2; sleep 1; done & kill $!"),
        ("a\0b",),
        ("\ud800",),
    ],
    ids=["absent", "slow", "failing", "noisy", "NUL", "surrogate"],
)
def test_nothing_about_the_command_reaches_the_verb(
    sf: standfast.Standfast, command: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    sf._store.notify = command
    began = time.monotonic()
    assert sf.approvals.request(plan(sf)).state == "requested"
    assert time.monotonic() - began < 30, "a minute's sleep was not waited for"
    assert capfd.readouterr() == ("", "")


def test_no_child_process_is_left_behind() -> None:
    code = (
        "import os\n"
        "from standfast.core.notices import start\n"
        "start(('/bin/sh', '-c', 'exit 3'), {})\n"
        "try: os.waitpid(-1, os.WNOHANG)\n"
        "except ChildProcessError: print('none')\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("none\n", "")


def test_no_machine_without_a_shell_is_troubled(sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object, **__: object) -> None:
        raise FileNotFoundError("/bin/sh")

    monkeypatch.setattr("subprocess.Popen", absent)
    assert sf.approvals.request(plan(sf)).state == "requested"


def test_without_a_setting_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "start", lambda *_: pytest.fail("started"))
    with standfast.open(":memory:", data_dir=tmp_path / "data") as sf:
        sf.approvals.request(plan(sf))
