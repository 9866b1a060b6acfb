"""Locks from a shell: one holder at a time, around any command. Each signal that kills the holder is tested."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle
from standfast.cli.lock import _released
from standfast.cli.output import Out
from tests.interfaces.test_cli import MAIN, environment, run

SPEAKING = "import os, sys; print(os.getpid(), os.environ['STANDFAST_LOCK'], flush=True); sys.stdin.readline()"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def sf(home: Path) -> Iterator[standfast.Standfast]:
    """The store that the commands use, opened from Python outside any repository, as the commands do."""
    settings = config.load(home / ".standfast" / "standfast.db", data_dir=home / ".standfast", cwd=home)
    with handle.connect(settings) as store:
        yield store


class Running:
    """`standfast lock NAME -- …` with a command that prints its pid and waits for a line."""

    def __init__(self, home: Path, *words: str, code: str = SPEAKING, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "lock", *words, "--", sys.executable, "-c", code],
            env=environment(home, **variables),
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        pid, _, self.lock = self.process.stdout.readline().strip().partition(" ")
        self.pid = int(pid)

    def end(self) -> int:
        self.process.communicate("\n", timeout=60)
        return self.process.returncode

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.communicate()


def locks(home: Path, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("lock", "--json", *words, home=home).stdout)["data"]
    return found


def test_an_empty_list_says_where_it_looked(home: Path) -> None:
    run("task", "add", "x", home=home)
    assert run("lock", home=home).stderr == "no lock is held here\n"
    assert run("lock", "list", "--all", home=home).stderr == "no lock is held in any repository or scope\n"


def test_a_verb_is_refused_and_not_taken_for_the_name_of_a_lock(home: Path) -> None:
    for words in (("show", "touch"), ("acquire", "touch", "--for", "5m"), ("take", "touch", "--", "touch", "ran")):
        refused = run("lock", *words, home=home)
        assert (refused.returncode, "lock has no verbs" in refused.stderr) == (2, True), refused.stderr
    assert locks(home) == []


# -- around a command --------------------------------------------------------------------------------------


def test_a_command_holds_the_lock_while_it_runs(home: Path) -> None:
    with Running(home, "deploy", "--note", "v42") as running:
        assert running.lock == "deploy"
        (held,) = locks(home)
        assert (held["name"], held["note"], held["standing"], held["fence"]) == ("deploy", "v42", "live", 1)
        assert f":{running.pid}:" in held["holder"]
        refused = run("lock", "deploy", "--", "touch", "ran", home=home, STANDFAST_ACTOR="bob")
        assert refused.returncode == 75
        assert f"held by process {running.pid}" in refused.stderr
        assert not (home / "ran").exists()
        assert running.end() == 0
    assert locks(home) == []


def test_the_same_on_either_engine(home: Path, engine_url: str) -> None:
    with Running(home, "deploy", STANDFAST_DB_URL=engine_url) as running:
        refused = run("lock", "deploy", "--", "touch", "ran", home=home, STANDFAST_DB_URL=engine_url)
        assert (refused.returncode, (home / "ran").exists()) == (75, False)
        os.kill(running.pid, signal.SIGKILL)
        assert running.process.wait(60) == 137
    assert run("lock", "deploy", "--", "touch", "ran", home=home, STANDFAST_DB_URL=engine_url).returncode == 0
    assert (home / "ran").exists()


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("true", 0)],
)
def test_the_exit_code_passes_through_and_the_lock_is_released(home: Path, command: str, code: int) -> None:
    assert run("lock", "deploy", "--", "sh", "-c", command, home=home).returncode == code
    assert locks(home) == []


def test_a_missing_command_exits_as_in_a_shell(home: Path) -> None:
    refused = run("lock", "deploy", "--", "no-such-command", home=home)
    assert (refused.returncode, "no-such-command" in refused.stderr) == (127, True)
    assert locks(home) == []


def test_what_the_command_reads_and_prints_is_its_own(home: Path) -> None:
    done = run("lock", "deploy", "--json", "--", "cat", home=home, input="some words\n")
    assert (done.returncode, done.stdout) == (0, "some words\n")


def test_a_killed_command_releases_its_lock_at_once(home: Path) -> None:
    with Running(home, "deploy") as running:
        os.kill(running.pid, signal.SIGKILL)
        assert running.process.wait(60) == 137
    assert run("lock", "deploy", "--", "true", home=home).returncode == 0


def test_a_command_whose_keeper_was_killed_holds_the_lock_until_it_ends(home: Path) -> None:
    """The lock belongs to the process that does the work."""
    with Running(home, "deploy") as running:
        running.process.kill()
        running.process.wait()
        assert run("lock", "deploy", "--", "true", home=home).returncode == 75
        os.kill(running.pid, signal.SIGKILL)
        with handle.connect(config.load(data_dir=home / ".standfast", cwd=home)) as store:
            while store.leases.get("deploy").standing == "live":  # until the kernel has ended the process
                pass
        assert run("lock", "deploy", "--", "true", home=home).returncode == 0


def test_signals_reach_the_command(home: Path) -> None:
    code = SPEAKING.replace("import os, sys;", "import os, sys, signal; signal.signal(15, lambda *_: sys.exit(9));")
    with Running(home, "deploy", code=code) as running:
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 9
    assert locks(home) == []


def test_waiting_ends_when_the_lock_is_free(home: Path) -> None:
    with Running(home, "deploy") as running:
        waiting = subprocess.Popen(
            [sys.executable, "-c", MAIN, "lock", "deploy", "--wait", "60s", "--", "echo", "mine"],
            env=environment(home),
            cwd=home,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert running.end() == 0
        assert waiting.communicate(timeout=60)[0] == "mine\n"
    assert waiting.returncode == 0


def test_waiting_has_an_end_and_can_be_given_up(home: Path) -> None:
    with Running(home, "deploy") as running:
        assert run("lock", "deploy", "--wait", "50ms", "--", "touch", "ran", home=home).returncode == 75
        for number in (signal.SIGINT, signal.SIGTERM):
            waiting = subprocess.Popen(
                [sys.executable, "-c", MAIN, "lock", "deploy", "--wait", "1h", "--", "touch", "ran"],
                env=environment(home, STANDFAST_ACTOR="waiting"),
                cwd=home,
                stderr=subprocess.DEVNULL,
            )
            while not _has_a_child(waiting.pid):
                assert waiting.poll() is None
            waiting.send_signal(number)
            assert waiting.wait(60) in (130, -number)
        assert running.end() == 0
    assert not (home / "ran").exists()


def _has_a_child(pid: int) -> bool:
    """Whether the child is there: `standfast lock` starts the command, stopped, before it asks for the lock."""
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text().strip())


def test_a_lock_that_is_taken_after_the_command_ended_was_not_lost(home: Path, sf: standfast.Standfast) -> None:
    held = sf.leases.acquire("deploy")
    sf.leases.release("deploy", held.fence)
    sf.leases.acquire("deploy")
    assert _released(Out("json"), sf, held, 0, kept=True) == 0
    assert _released(Out("json"), sf, held, 0, kept=False) == 4
    assert _released(Out("json"), sf, held, 9, kept=False) == 9


# -- without a command ---------------------------------------------------------------------------------------


def test_an_actor_holds_a_lock_between_its_commands(home: Path) -> None:
    first = json.loads(run("lock", "port-8080", "--for", "30m", "--json", home=home, STANDFAST_ACTOR="ann").stdout)[
        "data"
    ]
    assert (first["holder"], first["fence"], first["receipt"]["seq"]) == ("a:ann", 1, 1)
    assert run("lock", "port-8080", home=home, STANDFAST_ACTOR="bob").returncode == 75
    again = json.loads(run("lock", "port-8080", "--for", "2h", "--json", home=home, STANDFAST_ACTOR="ann").stdout)[
        "data"
    ]
    assert again["fence"] == 1
    assert again["lease_until_us"] - first["lease_until_us"] > 80 * 60 * 1_000_000
    assert run("lock", "port-8080", "--release", home=home, STANDFAST_ACTOR="bob").returncode == 4
    assert run("lock", "port-8080", "--release", home=home, STANDFAST_ACTOR="ann").returncode == 0
    assert run("lock", "no-such-lock", "--release", home=home).returncode == 3
    taken = json.loads(run("lock", "port-8080", "--json", home=home, STANDFAST_ACTOR="bob").stdout)["data"]
    assert (taken["holder"], taken["fence"]) == ("a:bob", 2)


def test_every_command_of_an_actor_renews_its_locks(home: Path) -> None:
    run("lock", "deploy", home=home, STANDFAST_ACTOR="ann")
    before = locks(home)[0]["lease_until_us"]
    assert locks(home)[0]["lease_until_us"] == before  # a command of another actor
    run("timeline", home=home, STANDFAST_ACTOR="ann")
    assert locks(home)[0]["lease_until_us"] > before


def test_a_lock_may_be_tied_to_a_process(home: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    held = json.loads(run("lock", "deploy", "--while", str(sleeper.pid), "--json", home=home).stdout)["data"]
    assert f":{sleeper.pid}:" in held["holder"]
    assert run("lock", "deploy", home=home, STANDFAST_ACTOR="bob").returncode == 75
    assert run("lock", "deploy", "--release", home=home).returncode == 0  # the actor that took the lock gives it back
    run("lock", "deploy", "--while", str(sleeper.pid), home=home)
    sleeper.kill()
    sleeper.wait()
    assert [one["standing"] for one in locks(home)] == ["gone"]
    assert run("lock", "deploy", home=home, STANDFAST_ACTOR="bob").returncode == 0


def test_python_and_shells_see_one_lock(home: Path, sf: standfast.Standfast) -> None:
    with sf.leases.hold("deploy", note="from python"):
        refused = run("lock", "deploy", "--", "true", home=home)
        assert (refused.returncode, f"process {os.getpid()}" in refused.stderr) == (75, True)
    assert run("lock", "deploy", "--", "true", home=home).returncode == 0
    with Running(home, "deploy"), pytest.raises(standfast.InProgress, match="the lock 'deploy' is held by process"):
        sf.leases.acquire("deploy")


def test_locks_are_listed_with_their_holders(home: Path) -> None:
    nothing = run("lock", "--json", home=home)  # there is no store yet: the list is empty, and no store is created
    assert (nothing.returncode, json.loads(nothing.stdout)["data"]) == (0, []), nothing.stderr
    assert "there is no store" in run("lock", home=home).stderr
    assert not list(home.rglob("standfast.db"))
    run("lock", "deploy", "--note", "v42", home=home, STANDFAST_ACTOR="ann")
    table = run("lock", home=home, STANDFAST_ACTOR="bob").stdout.splitlines()
    assert table[0].split("\t") == ["name", "held by", "state", "ends in", "fence", "note"]
    assert table[1].startswith("deploy\tann\tlive\t14m")
    assert [one["name"] for one in locks(home, "--all")] == ["deploy"]
    assert [one["name"] for one in locks(home, "--global")] == ["deploy"]
