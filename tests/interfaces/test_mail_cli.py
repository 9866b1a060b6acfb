"""Mail in a shell: each command is a process; one shell reads a mail, another marks it done."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.test_cli import MAIN, environment, run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def said(*words: str, home: Path, input: str | None = None, **variables: str) -> Any:
    """The `data` of a command that must succeed."""
    done = run(*words, "--json", home=home, cwd=None, input=input, **variables)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    return document["data"]


def test_a_mail_is_sent_read_and_done_in_two_shells(home: Path) -> None:
    """000-38, 000-41: sent by one actor, read and answered by another, receipted."""
    sent = said(
        "mail", "send", "bob", "look at #42", "--key", "k", "--subject", "review", home=home, STANDFAST_ACTOR="ann"
    )
    assert (sent["box"], sent["sender"], sent["state"], sent["receipt"]["seq"]) == ("bob", "ann", "sent", 1)
    again = said("mail", "send", "bob", "look at #42", "--key", "k", "--subject", "review", home=home)
    assert (again["id"], again["replayed"]) == (sent["id"], True)
    assert run("mail", "send", "bob", "other", "--key", "k", home=home).returncode == 4
    waiting = run("mail", "receipts", "k", "--wait", "0", "--json", home=home)
    assert (waiting.returncode, json.loads(waiting.stderr)["error"]["code"]) == (75, "in_progress")
    read = said("mail", "read", home=home, STANDFAST_ACTOR="bob")
    assert (read["id"], read["body"], read["state"], read["holder"]) == (sent["id"], "look at #42", "read", "a:bob")
    assert run("mail", "done", read["id"][-6:], home=home, STANDFAST_ACTOR="eve").returncode == 4
    answer = said("mail", "reply", read["id"], "fine", "--done", home=home, STANDFAST_ACTOR="bob")
    assert (answer["box"], answer["thread_id"]) == ("ann", sent["id"])
    assert said("mail", "receipts", "k", "--wait", "0", home=home)["state"] == "done"
    assert said("mail", "receipts", home=home, STANDFAST_ACTOR="ann")[0]["words"].startswith("done by bob")
    shown = said("mail", "show", "k", home=home)
    assert [one["type"] for one in shown["history"]] == ["mail.sent", "mail.leased", "mail.done"]
    assert [one["body"] for one in shown["thread"]] == ["look at #42", "fine"]
    assert run("verify", json.dumps(sent["receipt"]), home=home).returncode == 0
    said("mail", "read", home=home, STANDFAST_ACTOR="ann")
    assert "2 mail boxes" in run("status", home=home).stdout


def test_a_dead_letter_is_listed_shown_retried_and_resolved(home: Path) -> None:
    """000-40: a person sees the reason and resolves the letter."""
    sent = said("mail", "send", "bob", "hi", "--attempts", "1", home=home)
    said("mail", "read", "--to", "bob", home=home)
    assert "is a dead letter" in run("mail", "defer", sent["id"], "--for", "1h", "--reason", "CI", home=home).stdout
    (dead,) = said("mail", "dead", home=home)
    assert (dead["subject"], dead["reason"]) == (sent["id"], "1 attempt, the last one deferred: CI")
    assert "CI" in run("mail", "show", sent["id"], home=home).stdout
    status = said("status", home=home)
    assert [one["kind"] for one in status["needs"]] == ["dead_letter"]
    assert said("mail", "retry", sent["id"], "--note", "again", home=home)["state"] == "sent"
    assert said("mail", "refuse", sent["id"], "--reason", "never", home=home)["state"] == "dead"
    assert said("mail", "resolve", sent["id"], "--note", "by phone", home=home)["settlement"] == "resolved"
    assert said("mail", "dead", home=home) == []
    assert len(said("mail", "dead", "--settled", home=home)) == 2


def test_every_verb_answers_in_json_and_garbage_in_a_sentence(home: Path) -> None:
    assert said("mail", "list", home=home) == []
    missing = run("mail", "show", "nothing", "--json", home=home)
    assert (missing.returncode, json.loads(missing.stderr)["error"]["code"]) == (3, "not_found")
    one = said("mail", "send", "role:x", "--body-json", '{"a": [1]}', home=home)["id"]
    assert (
        said("mail", "send", "role:x", "-", "--for", "1h", home=home, input="from a pipe\n")["body"] == "from a pipe\n"
    )
    page = json.loads(run("mail", "list", "--limit", "1", "--json", home=home).stdout)
    rest = json.loads(run("mail", "list", "--limit", "1", "--after", page["next"], "--json", home=home).stdout)
    assert [found["body"] for found in (*page["data"], *rest["data"])] == [{"a": [1]}, "from a pipe\n"]
    assert said("mail", "read", one, "--for", "1h", home=home)["attempts"] == 1
    assert said("mail", "renew", one, home=home)["fence"] == 1
    assert said("mail", "release", one, home=home)["state"] == "sent"
    assert run("mail", "read", "--json", home=home).returncode == 3
    for words, code in (
        (("mail", "send", "role:x"), 2),
        (("mail", "send", "x", "--body-json", "{not json"), 2),
        (("mail", "defer", one), 2),
        (("mail", "done", "zzzzzz"), 3),
        (("mail", "retry", one), 4),
        (("mail", "list", "--after", "nowhere"), 2),
    ):
        refused = run(*words, "--json", home=home)
        assert (refused.returncode, refused.stdout) == (code, ""), refused.stderr
        assert json.loads(refused.stderr)["error"]["message"]


def test_printed_mail_cannot_harm_a_terminal(home: Path) -> None:
    said("mail", "send", "bob", "-", home=home, input="red \x1b[31m\x9b \u202eturned\nmail x from your boss")
    for words in (("mail", "list"), ("mail", "read", "--to", "bob"), ("mail", "list", "--state", "any")):
        shown = run(*words, home=home).stdout
        assert "red" in shown
        assert not {"\x1b", "\x9b", "\u202e"} & set(shown)
    assert (
        "\n> mail x from your boss" in run("mail", "show", said("mail", "list", home=home)[0]["id"], home=home).stdout
    )


def test_following_prints_mail_as_it_comes(home: Path) -> None:
    command = [sys.executable, "-c", MAIN, "mail", "follow", "bob", "--jsonl", "--limit", "2", "--done"]
    with subprocess.Popen(command, env=environment(home), cwd=home, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        for body in ("first", "second"):
            sent = said("mail", "send", "bob", body, home=home)
            got = json.loads(follower.stdout.readline())
            assert (got["id"], got["body"]) == (sent["id"], body)
        assert follower.wait(30) == 0
    assert [one["state"] for one in said("mail", "list", "--state", "any", home=home)] == ["done", "done"]


def test_waiting_for_mail_in_a_shell_holds_it_for_the_actor(home: Path) -> None:
    said("mail", "send", "bob", "hi", home=home)
    read = said("mail", "read", "--wait", "5", home=home, STANDFAST_ACTOR="bob")
    assert (read["body"], read["state"]) == ("hi", "read")
    run("where", home=home, STANDFAST_ACTOR="bob")
    run("status", home=home, STANDFAST_ACTOR="bob")
    held = said("mail", "show", read["id"], home=home)
    assert held["lease_until_us"] > read["lease_until_us"], "a command of bob's renews what he reads"
    assert run("mail", "read", "--wait", "0.05", home=home, STANDFAST_ACTOR="bob").returncode == 3


def test_mail_read_for_a_process_is_ready_again_after_it_exits(home: Path) -> None:
    said("mail", "send", "bob", "hi", home=home)
    sleeper = subprocess.Popen(["sleep", "60"])
    held = said("mail", "read", "--to", "bob", "--while", str(sleeper.pid), home=home)
    assert held["holder"].startswith("p:")
    assert run("mail", "read", "--to", "bob", home=home, STANDFAST_ACTOR="eve").returncode == 3
    sleeper.kill()
    sleeper.wait()
    assert said("mail", "read", "--to", "bob", home=home, STANDFAST_ACTOR="eve")["attempts"] == 2
