"""Events from a shell: real processes, one command each."""

from __future__ import annotations

import json
import signal
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


def refused(*words: str, home: Path, input: str | None = None) -> tuple[int, str]:
    done = run(*words, "--json", home=home, cwd=None, input=input)
    return done.returncode, json.loads(done.stderr)["error"]["code"]


def test_a_stream_is_written_read_and_folded_in_a_shell(home: Path) -> None:
    """001-71 in a shell: every answer is JSON with its receipt."""
    first = said("event", "append", "board", "set", '{"a": "open"}', "--key", "k", home=home)
    assert (first["version"], first["receipt"]["seq"]) == (1, 1)
    assert said("event", "append", "board", "set", '{"a": "open"}', "--key", "k", home=home)["receipt"] is None
    assert refused("event", "append", "board", "set", "other", "--key", "k", home=home) == (4, "key_conflict")
    assert refused("event", "append", "board", "set", "--expect", "7", home=home) == (4, "version_conflict")
    assert refused("event", "append", "board", "task.closed", home=home) == (2, "reserved_type")
    assert refused("event", "append", "notes", "said", "{not json", home=home) == (2, "invalid_input")
    said("event", "append", "notes", "said", "{not json", "--as", "text", home=home)
    lines = '{"type": "set", "data": {"a": "done"}}\n\n{"type": "set", "data": {"b": 1}}\n'
    many = said("event", "append", "board", "-", "--expect", "1", home=home, input=lines)
    assert [one["version"] for one in many] == [2, 3]
    assert refused("event", "append", "board", "-", home=home, input='{"type": "x"}\n{"typ": 1}\n') == (
        2,
        "invalid_input",
    )
    assert [event["version"] for event in said("event", "list", "board", "--after", "1", home=home)] == [2, 3]
    changed = said("event", "diff", "board", "--from", "1", home=home)
    assert [(one["path"], one["kind"]) for one in changed] == [("/a", "changed"), ("/b", "added")]
    assert refused("event", "list", "bord", home=home) == (3, "not_found")
    assert [stream["name"] for stream in said("event", "streams", home=home)] == ["board", "notes"]


def test_a_command_consumes_each_event_until_one_fails(home: Path, tmp_path: Path) -> None:
    for n in range(3):
        said("event", "append", "orders", "placed", str(n), home=home)
    seen = tmp_path / "seen"
    script = f'read line; echo "$line" >> {seen}; case "$line" in *\'"data": 1\'*) exit 9;; esac'
    failed = run("event", "consume", "c", "orders", "--", "sh", "-c", script, home=home)
    assert (failed.returncode, "not committed" in failed.stderr) == (1, True)
    assert [json.loads(line)["data"] for line in seen.read_text().splitlines()] == [0, 1]
    assert said("event", "consumers", home=home)[0]["version"] == 1
    peeked = run("event", "consume", "c", "orders", "--peek", "--jsonl", home=home)
    assert [json.loads(line)["data"] for line in peeked.stdout.splitlines()] == [1, 2]
    taken = run("event", "consume", "c", "orders", "--limit", "1", "--jsonl", home=home)
    assert [json.loads(line)["data"] for line in taken.stdout.splitlines()] == [1]
    assert run("event", "consume", "c", "orders", "--", "true", home=home).returncode == 0
    assert said("event", "consumers", home=home)[0]["behind"] == 0
    assert run("event", "consume", "c", home=home).returncode == 2
    whole = run("event", "consume", "all", "--journal", "--type", "placed", "--", "true", home=home)
    assert whole.returncode == 0, whole.stderr


def test_a_follower_prints_each_event_as_it_is_written(home: Path) -> None:
    said("event", "append", "orders", "old", home=home)
    command = [sys.executable, "-c", MAIN, "event", "follow", "orders", "--after", "0", "--jsonl"]
    with subprocess.Popen(command, env=environment(home), cwd=home, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["type"] == "old"
        said("event", "append", "orders", "new", home=home)
        assert json.loads(following.stdout.readline())["type"] == "new"
        following.send_signal(signal.SIGINT)
        try:
            following.wait(30)
        finally:
            following.kill()


def test_consumers_are_listed_in_pages(home: Path) -> None:
    said("event", "append", "orders", "placed", home=home)
    for name in ("a b", "c"):
        run("event", "consume", name, "orders", "--jsonl", home=home)
    first = json.loads(run("event", "consumers", "--limit", "1", "--json", home=home).stdout)
    assert [one["name"] for one in first["data"]] == ["a b"]
    assert [one["name"] for one in said("event", "consumers", "--after", first["next"], home=home)] == ["c"]
    assert refused("event", "consumers", "--after", "a b", home=home) == (2, "invalid_input")


def test_a_consumer_of_the_journal_is_listed_with_the_journal_as_its_stream(home: Path) -> None:
    """DESIGN §5, Output: people read `(journal)`; the JSON has the model's empty stream, and `next` works."""
    said("event", "append", "orders", "placed", home=home)
    run("event", "consume", "all", "--journal", "--jsonl", home=home)
    listed = run("event", "consumers", home=home)
    heading, row = (line.split("\t") for line in listed.stdout.splitlines())
    assert (heading[:2], row[:2]) == (["consumer", "stream"], ["all", "(journal)"])
    assert listed.stderr.splitlines() == ["next: standfast event consume all --journal --peek"]
    assert [one["stream"] for one in said("event", "consumers", home=home)] == [""]
