"""Webhooks and credits from a shell: real processes, one command each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.test_cli import MAIN, environment, run

BODY = '{"type": "invoice.paid", "amount": 5}'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def said(*words: str, home: Path, input: str | None = None, **variables: str) -> Any:
    """The `data` of a command that must succeed."""
    done = run(words[0], words[1], "--json", *words[2:], home=home, cwd=None, input=input, **variables)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    return document["data"]


def refused(*words: str, home: Path, input: str | None = None) -> tuple[int, str]:
    done = run(words[0], words[1], "--json", *words[2:], home=home, input=input)
    assert done.stdout == ""
    return done.returncode, json.loads(done.stderr)["error"]["code"]


RECEIVE = ("webhook", "receive", "stripe", "--event-id", "evt_1")


def test_an_event_is_received_claimed_and_done_in_a_shell(home: Path) -> None:
    """000-20: the second delivery gets the first result, without an error."""
    (home / "body.json").write_text(BODY)
    first = said(*RECEIVE, "body.json", "--kind", "invoice.paid", home=home)
    assert (first["fresh"], first["payload"]["amount"], first["receipt"]["seq"]) == (True, 5, 1)
    claimed = said("webhook", "claim", "--source", "stripe", home=home, STANDFAST_ACTOR="ann")
    assert (claimed["id"], claimed["holder"], claimed["attempts"]) == (first["id"], "a:ann", 1)
    lost = run("webhook", "done", "stripe/evt_1", "--json", home=home, STANDFAST_ACTOR="bob")
    assert (lost.returncode, json.loads(lost.stderr)["error"]["code"]) == (4, "lease_lost")
    done = said("webhook", "done", first["id"][-6:], "--result", '{"order": 7}', home=home, STANDFAST_ACTOR="ann")
    assert run("verify", json.dumps(done["receipt"]), home=home).returncode == 0
    again = said(*RECEIVE, home=home, input=BODY)
    assert (again["fresh"], again["state"], again["result"], again["deliveries"]) == (False, "done", {"order": 7}, 2)
    listed = run("webhook", home=home)
    assert listed.returncode == 0
    assert "evt_1" in listed.stdout
    shown = said("webhook", "show", "stripe/evt_1", home=home)
    assert [event["type"] for event in shown["history"]] == [
        "webhook.received",
        "webhook.claimed",
        "webhook.done",
        "webhook.redelivered",
    ]


def test_a_command_handles_it_once_and_later_deliveries_get_its_answer(home: Path) -> None:
    script = "cat; echo ' for' $STANDFAST_WEBHOOK_SOURCE/$STANDFAST_WEBHOOK_EVENT_ID; echo note >&2; echo x >> ran"
    command = ("--", "sh", "-c", script)
    large = json.dumps({"text": "x" * 200_000})
    first, second = (run(*RECEIVE, *command, home=home, input=large) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stdout == second.stdout or len(first.stdout) > 128 * 1024, "long output is kept at both ends"
    assert first.stdout.endswith(" for stripe/evt_1\n")
    assert second.stdout.endswith(" for stripe/evt_1\n")
    assert "already delivered" in second.stderr
    assert "note" in second.stderr
    assert (home / "ran").read_text() == "x\n"


def test_a_failing_command_is_tried_again_and_then_given_up(home: Path) -> None:
    failing = ("--attempts-max", "2", "--", "sh", "-c", "echo 'no such customer' >&2; exit 9")
    first = run(*RECEIVE, *failing, home=home, input=BODY)
    assert (first.returncode, "attempt 1 of 2" in first.stderr) == (9, True)
    killed = run(*RECEIVE, "--", "sh", "-c", "kill -9 $$", home=home, input=BODY)
    assert (killed.returncode, "dead letter" in killed.stderr) == (128 + 9, True)
    assert refused(*RECEIVE, "--", "true", home=home, input=BODY) == (4, "illegal_transition")
    (letter,) = said("webhook", "dead", home=home)
    assert (letter["reason"], letter["attempts"]) == ("ended by SIGKILL", 2)
    status = run(home=home)
    assert f"standfast webhook retry {letter['subject'][-6:]}" in status.stdout
    assert said("webhook", "retry", letter["id"][-8:], "--note", "fixed", home=home)["attempts"] == 0
    assert said(*RECEIVE, "--", "true", home=home, input=BODY)["state"] == "done"
    assert said("webhook", "dead", "--settled", home=home)[0]["settlement"] == "retried"


def test_failed_by_hand_and_resolved_by_hand(home: Path) -> None:
    said(*RECEIVE, home=home, input=BODY)
    assert refused("webhook", "fail", "stripe/evt_1", "--reason", "x", home=home) == (4, "lease_lost")
    said("webhook", "claim", home=home)
    failed = said("webhook", "fail", "stripe/evt_1", "--reason", "503", "--again-in", "0s", home=home)
    assert (failed["state"], failed["error"]) == ("received", "503")
    said("webhook", "claim", home=home)
    said("webhook", "renew", "stripe/evt_1", "--for", "1h", home=home)
    assert said("webhook", "fail", "stripe/evt_1", "--reason", "410", "--dead", home=home)["state"] == "dead"
    assert said("webhook", "resolve", "stripe/evt_1", "--note", "by hand", home=home)["state"] == "done"
    assert refused("webhook", "claim", home=home) == (3, "nothing_ready")


def test_after_a_kill_the_next_delivery_knows_whether_the_handler_still_runs(home: Path) -> None:
    """The handler's command holds the lease, which survives standfast and ends with the command."""
    script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done"
    words = [*RECEIVE, "--", "sh", "-c", script]
    ours = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words], env=environment(home), cwd=home, stdin=subprocess.PIPE, text=True
    )
    assert ours.stdin is not None
    ours.stdin.write(BODY)
    ours.stdin.close()
    end = time.monotonic() + 30
    while not ((home / "pid").exists() and (home / "pid").read_text().strip()):
        assert time.monotonic() < end
        time.sleep(0.01)
    ours.kill()
    ours.wait()
    assert refused(*RECEIVE, "--", "true", home=home, input=BODY) == (75, "in_progress")
    os.kill(int((home / "pid").read_text()), signal.SIGKILL)
    again = said(*RECEIVE, "--", "true", home=home, input=BODY)
    assert (again["state"], again["attempts"]) == ("done", 2)


def test_what_makes_no_sense_is_refused_with_the_next_command(home: Path) -> None:
    (home / "other.json").write_text('{"type": "invoice.paid", "amount": 6}')
    said(*RECEIVE, home=home, input=BODY)
    conflict = run(*RECEIVE, "other.json", home=home)
    assert (conflict.returncode, "amount differ" in conflict.stderr, "--ignore amount" in conflict.stderr) == (
        4,
        True,
        True,
    )
    assert said(*RECEIVE, "other.json", "--ignore", "amount", home=home)["payload"]["amount"] == 5
    for words, input in (
        (("webhook", "receive", "stripe"), BODY),
        ((*RECEIVE, "missing.json"), None),
        (("webhook", "receive", "s", "--event-id", "2"), "not json"),
        (("webhook", "receive", "s", "--event-id", "2", "--attempts-max", "0"), BODY),
        (("webhook", "resolve", "stripe/evt_1"), None),
    ):
        done = run(*words, home=home, input=input)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert "Traceback" not in done.stderr
    assert refused("webhook", "show", "zzzzzz", home=home) == (3, "not_found")
    text = said("webhook", "receive", "s", "--event-id", "2", "--text", home=home, input="a=1&b=2")
    assert text["payload"] == "a=1&b=2"
    missing = run("webhook", "receive", "s", "--event-id", "3", "--", "no-such-command", home=home, input=BODY)
    assert (missing.returncode, "No such file" in missing.stderr) == (127, True)


def test_credits_from_a_shell(home: Path) -> None:
    """000-21, 000-22."""
    grant = ("credit", "add", "ada", "100", "--key", "monthly:invoice_1", "--reason", "November")
    first = said(*grant, home=home)
    assert (first["amount"], first["balance"], first["fresh"]) == (100, 100, True)
    again = run(*grant, home=home)
    assert (again.stdout, "nothing changed" in again.stderr) == ("ada has 100 credits\n", True)
    assert refused("credit", "add", "ada", "7", "--key", "monthly:invoice_1", home=home) == (4, "key_conflict")
    assert refused("credit", "spend", "ada", "101", "--key", "run:1", home=home) == (4, "insufficient")
    assert said("credit", "spend", "ada", "60", "--key", "run:1", "--at", "yesterday 12:00", home=home)["balance"] == 40
    assert said("credit", "refund", "run:1", "--amount", "10", home=home)["balance"] == 50
    assert said("credit", "spend", "ada", "80", "--key", "x", "--below-zero", home=home)["balance"] == -30
    assert [entry["amount"] for entry in said("credit", "list", "ada", home=home)] == [-80, 10, -60, 100]
    assert said("credit", "show", "run:1", home=home)["amount"] == -60
    assert refused("credit", "show", "run:9", home=home) == (3, "not_found")
    (balance,) = said("credit", "balance", "ada", home=home)
    assert (balance["balance"], balance["entries"]) == (-30, 4)
    (then,) = said("credit", "balance", "--at", "yesterday 13:00", home=home)
    assert then["balance"] == -60
    assert said("credit", "balance", "ada", "--unit", "tokens", home=home)[0]["balance"] == 0
    for words in (
        ("credit", "add", "ada", "1"),
        ("credit", "add", "ada", "0", "--key", "k"),
        ("credit", "balance", "--after", "nonsense"),
        ("credit", "spend", "ada", "1", "--key", "k", "--at", "never"),
    ):
        done = run(*words, home=home)
        assert (done.returncode, done.stdout) == (2, ""), words
