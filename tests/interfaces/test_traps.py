"""The traps that catch designs like this one, and the course's five tasks, end to end through the public names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import standfast
from standfast import crash
from standfast.testing import load_everything

FIVE = ("fetch", "parse", "check", "render", "publish")


def five_tasks(url: str, directory: Path) -> dict[str, int]:
    """001-78: each of the five tasks uses the result of the one before. The last one calls the outside system."""
    with standfast.open(url, data_dir=directory) as sf, sf.session("five") as s:
        value = 1
        for name in FIVE[:-1]:
            value = s.step(name, _grow, value, name)

        def publish(call: standfast.Call) -> int:
            with (directory / "published").open("a") as file:
                file.write(f"{call.intent['value']}\n")
            return int(call.intent["value"])

        def look(call: standfast.Call) -> standfast.Applied | standfast.NotApplied:
            file = directory / "published"
            return standfast.Applied(call.intent["value"]) if file.exists() else standfast.NotApplied()

        done = s.effect("publish", {"value": value}, do=publish, probe=look, settle=0)
        return {"result": done}


def _grow(value: int, name: str) -> int:
    return value * 10 + len(name)


@pytest.mark.slow
def test_five_dependent_tasks_killed_at_every_boundary_end_the_same(tmp_path: Path) -> None:
    """001-78: interrupted anywhere, they resume at the right task and end with the same result."""
    count = 0

    def reset() -> None:
        nonlocal count
        count += 1
        (tmp_path / str(count)).mkdir()

    def run() -> None:
        directory = tmp_path / str(count)
        five_tasks(str(directory / "standfast.db"), directory)

    def check(schedule: crash.Schedule) -> None:
        directory = tmp_path / str(count)
        assert (directory / "published").read_text() == "15556\n", schedule
        assert five_tasks(str(directory / "standfast.db"), directory) == {"result": 15556}
        assert (directory / "published").read_text() == "15556\n"

    load_everything()
    schedules = crash.sweep(run, run, check, reset=reset, double=False, max_schedules=60)
    assert schedules > 30


def test_the_same_five_tasks_in_a_file_and_in_the_store_end_the_same(tmp_path: Path) -> None:
    """001-78: the file version and this one give the same result."""
    value = 1
    for name in FIVE[:-1]:
        value = _grow(value, name)
    (tmp_path / "state.json").write_text(json.dumps({"result": value}))
    assert json.loads((tmp_path / "state.json").read_text()) == five_tasks(str(tmp_path / "s.db"), tmp_path)


def test_one_session_key_in_two_repositories_is_a_conflict_and_in_two_scopes_two_sessions(
    engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key names one thing in the store; a scope separates keys on purpose."""
    ids = []
    for name in ("one", "two"):
        repository = tmp_path / name
        for part in ("objects", "refs"):
            (repository / ".git" / part).mkdir(parents=True)
        (repository / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (repository / ".git" / "config").write_text(f'[remote "origin"]\n\turl = git@host:me/{name}.git\n')
        monkeypatch.chdir(repository)
        with standfast.open(engine_url, data_dir=tmp_path / "data", scope=name) as sf, sf.session("fix-42") as s:
            assert s.resumed is None
            ids.append(s.id)
    assert len(set(ids)) == 2
    with standfast.open(engine_url, data_dir=tmp_path / "data", scope="one") as sf:
        with pytest.raises(standfast.Conflict, match="host/me/one") as caught, sf.session("fix-42"):
            pass
        assert caught.value.code == "other_repository"


TURN = """
import sys, standfast
url, data, words = sys.argv[1:]
with standfast.open(url, data_dir=data) as sf, sf.session("chat") as s:
    s.say("user", words)
    said = [m.content for m in s.messages(last=50) if m.role == "user"]
    s.say("assistant", f"answer {len(said)} to {words}")
    print(s.messages(last=1)[0].content)
"""


def test_a_chat_with_a_process_per_turn_gives_each_turn_its_own_answer(engine_url: str, tmp_path: Path) -> None:
    """003-1: ask, quit, run again: it resumes."""
    answers = []
    for words in ("hello", "hello", "bye"):
        done = subprocess.run(
            [sys.executable, "-c", TURN, engine_url, str(tmp_path / "data"), words],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout.strip())
    assert answers == ["answer 1 to hello", "answer 2 to hello", "answer 3 to bye"]


def test_a_typo_in_do_leaves_a_traceback_that_names_the_settling_command(sf: standfast.Standfast) -> None:
    def do(call: standfast.Call) -> None:
        call.intnet  # type: ignore[attr-defined]  # noqa: B018

    with pytest.raises(AttributeError) as caught, sf.session("typo") as s:
        s.effect("tool", {"a": 1}, do=do)
    notes = "\n".join(caught.value.__notes__)
    assert "in doubt" in notes
    assert "standfast effect resolve" in notes


def test_push_fix_push_is_two_pushes(sf: standfast.Standfast) -> None:
    pushed = []

    def push(call: standfast.Call) -> str:
        pushed.append(call.intent["head"])
        return str(call.intent["head"])

    with sf.session("push") as s:
        for head in ("aaa", "bbb"):
            s.effect("git.push", {"branch": "fix", "head": head}, do=push, by=("branch", "head"))
    assert pushed == ["aaa", "bbb"]


SLOW = """
import os, sys, time, standfast
url, data = sys.argv[1:]
with standfast.open(url, data_dir=data) as sf, sf.session("one") as s:
    print("in", flush=True)
    sys.stdin.readline()
    print(s.step("work", lambda: os.getpid()), flush=True)
"""


def test_of_two_processes_that_resume_one_session_one_wins_and_the_other_gets_its_name(
    engine_url: str, tmp_path: Path
) -> None:
    """000-36: there are never two owners, and work of a dead process is taken over at once."""
    arguments = [sys.executable, "-c", SLOW, engine_url, str(tmp_path / "data")]
    first = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "in\n"
    second = subprocess.run(arguments, input="\n", capture_output=True, text=True, timeout=60)
    assert second.returncode == 1
    assert f"process {first.pid}" in second.stderr
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    assert first.stdin is not None
    first.stdin.close()
    third = subprocess.run(arguments, input="\n", capture_output=True, text=True, timeout=60)
    assert third.returncode == 0, third.stderr
