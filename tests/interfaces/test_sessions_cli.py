"""`standfast session` for shells, scripts and persons, in real processes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import standfast
from tests import commands
from tests.commands import MAIN

STANDFAST = f'"{sys.executable}" -c "{MAIN}"'


class Shell:
    """Commands of one person, in one directory, on one store."""

    def __init__(self, place: Path, url: str | None = None, **variables: str) -> None:
        self.place = place
        chosen = {"STANDFAST_DB_URL": url} if url else {}
        self.environment = {
            **os.environ,
            "STANDFAST_DATA_DIR": str(place / "data"),
            "STANDFAST_ACTOR": "ada",
            **chosen,
            **variables,
        }

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, *words],
            env=self.environment,
            cwd=self.place,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **{"stdin": subprocess.DEVNULL, **options},
        )

    def run(self, *words: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        return commands.run(*words, environment=self.environment, cwd=self.place, input=input)

    def data(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["data"]

    def open(self) -> standfast.Standfast:
        return standfast.open(self.environment.get("STANDFAST_DB_URL"), data_dir=self.place / "data")


@pytest.fixture
def shell(engine_url: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, engine_url)


@pytest.fixture
def here(tmp_path: Path) -> Shell:
    """A store on SQLite only, for tests that do not depend on the engine."""
    return Shell(tmp_path)


def test_a_session_is_opened_written_listed_forked_and_ended(shell: Shell) -> None:
    opened = shell.data("session", "open", "fix-42", "--agent", "coder", "--for", "30m")
    assert (opened["key"], opened["state"], opened["holder"], opened["fence"]) == ("fix-42", "active", "a:ada", 1)
    assert opened["resumed"] is None
    assert opened["receipt"]["seq"] >= 1
    said = shell.data("session", "say", "fix-42", "please fix it")
    assert (said["position"], said["role"], said["content"]) == (1, "user", "please fix it")
    shell.data("session", "say", "fix-42", '{"a": 1}', "--content-json", "--role", "assistant", "--key", "one")
    again = shell.data("session", "say", "fix-42", '{"a": 1}', "--content-json", "--role", "assistant", "--key", "one")
    assert (again["position"], again["receipt"]) == (2, None)
    assert shell.run("session", "say", "fix-42", "other", "--key", "one").returncode == 4
    shell.data("session", "say", "fix-42", "look", "--node", "reviewer/tests")
    shown = shell.data("session", "show", "fix-42", "--last", "1")
    assert [m["content"] for m in shown["messages"]] == [{"a": 1}]
    assert [n["name"] for n in shown["nodes"]] == ["", "reviewer", "tests"]
    fork = shell.data("session", "fork", "fix-42", "fix-42b", "--at", "1")
    assert (fork["cut_position"], fork["reason"]) == (1, "forked from fix-42 at 1")
    again = shell.data("session", "open", "fix-42")
    assert (again["fence"], again["resumed"]["messages"], again["resumed"]["crashed"]) == (1, 3, False)
    listed = shell.run("session", "list")
    assert "please fix it" in listed.stdout
    assert "next: standfast session show" in listed.stderr
    ended = shell.data("session", "end", "fix-42", "--failed", "the tests stay red")
    assert (ended["state"], ended["reason"], ended["holder"]) == ("failed", "the tests stay red", None)
    assert [one["key"] for one in shell.data("session", "list", "--state", "failed")] == ["fix-42"]


def test_run_passes_the_exit_code_on_and_the_command_knows_its_session(shell: Shell) -> None:
    done = shell.run("session", "run", "job", "--", "sh", "-c", f"{STANDFAST} session say hello --role tool; exit 3")
    assert done.returncode == 3, done.stderr
    shown = shell.data("session", "show", "job")
    assert (shown["state"], shown["reason"], shown["holder"]) == ("failed", "exit code 3", None)
    assert [m["content"] for m in shown["messages"]] == ["hello"]
    assert shown["command"][:2] == ["sh", "-c"]
    assert shown["cwd"] == str(shell.place)
    again = shell.run("session", "resume", "job")
    assert again.returncode == 3
    assert "sh -c" in again.stderr
    assert (shell.data("session", "show", "job")["openings"], shown["openings"]) == (2, 1)
    assert shell.run("session", "run", "job", "--", "true").returncode == 0
    assert shell.data("session", "show", "job")["state"] == "completed"


def test_while_a_command_runs_it_is_the_one_that_holds_the_session(here: Shell) -> None:
    with here.start("session", "run", "job", "--", "sh", "-c", "echo $$; read _", stdin=subprocess.PIPE) as running:
        assert running.stdout is not None
        pid = running.stdout.readline().strip()
        refused = here.run("session", "open", "job")
        assert refused.returncode == 75
        assert f"held by process {pid} on" in refused.stderr
        assert here.run("session", "run", "job", "--", "touch", "never").returncode == 75
        assert not (here.place / "never").exists()
        running.communicate("\n")
        assert running.returncode == 0
    assert here.data("session", "show", "job")["state"] == "completed"


@pytest.mark.parametrize(
    ("number", "code", "state", "reason"),
    [
        (signal.SIGTERM, 143, "failed", "ended by SIGTERM"),
        (signal.SIGINT, 130, "waiting", "interrupted"),
        (signal.SIGHUP, 129, "failed", "ended by SIGHUP"),
        (signal.SIGUSR1, 138, "failed", "ended by SIGUSR1"),
    ],
)
def test_signals_reach_the_command(here: Shell, number: int, code: int, state: str, reason: str) -> None:
    with here.start("session", "run", "job", "--", "sh", "-c", "echo ready; exec sleep 60") as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.send_signal(number)
        running.communicate(timeout=30)
        assert running.returncode == code
    shown = here.data("session", "show", "job")
    assert (shown["state"], shown["reason"]) == (state, reason)


def test_a_command_may_catch_a_signal_and_end_as_it_likes(here: Shell) -> None:
    script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    with here.start("session", "run", "job", "--", "sh", "-c", script) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)
        assert running.returncode == 0
    assert here.data("session", "show", "job")["state"] == "completed"


def test_ctrl_c_on_a_terminal_reaches_the_command_once(here: Shell) -> None:
    counting = """
        import signal, sys
        signal.pthread_sigmask(signal.SIG_BLOCK, {2})
        print("ready", flush=True)
        signal.sigwait({2})
        sys.exit(1 if signal.sigtimedwait({2}, 1) is None else 2)
    """
    agent = [sys.executable, "-c", textwrap.dedent(counting)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(here.place)
        os.execvpe(
            sys.executable,
            [sys.executable, "-c", MAIN, "session", "run", "job", "--", *agent],
            here.environment,
        )
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    os.close(terminal)


def test_a_command_that_is_killed_and_one_that_cannot_start(here: Shell) -> None:
    assert here.run("session", "run", "a", "--", "sh", "-c", "kill -9 $$").returncode == 137
    assert here.data("session", "show", "a")["reason"] == "ended by SIGKILL"
    missing = here.run("session", "run", "b", "--", "./no-such-program")
    assert missing.returncode == 127
    assert "./no-such-program: No such file" in missing.stderr
    (here.place / "plain").write_text("x")
    assert here.run("session", "run", "b", "--", "./plain").returncode == 126
    assert here.data("session", "show", "b")["reason"] == "exit code 126"


def test_when_everything_is_killed_the_session_is_crashed_and_resumes(shell: Shell) -> None:
    """000-1: standfast does not restart the session, but one command resumes it."""
    script = "echo run >> ran; test -f go && exit 0; echo $$; exec sleep 60"
    with shell.start("session", "run", "job", "--", "sh", "-c", script) as running:
        assert running.stdout is not None
        child = int(running.stdout.readline())
        running.kill()
        os.kill(child, signal.SIGKILL)
        running.communicate()
    crashed = shell.data("session", "list", "--state", "crashed")
    assert [one["key"] for one in crashed] == ["job"]
    (shell.place / "go").touch()
    assert shell.run("session", "resume", "job").returncode == 0
    assert (shell.place / "ran").read_text() == "run\nrun\n"
    assert shell.data("session", "show", "job")["state"] == "completed"
    with shell.open() as sf:
        told = [event.type for event in sf.journal.about(crashed[0]["id"])]
    assert told == ["session.opened", "session.taken_over", "session.completed"]


AGENT = """
import os, standfast
with standfast.open() as sf, sf.session(os.environ.get("KEY", "job")) as s:
    found = s.resumed
    print("fresh" if found is None else f"{found.state} {found.crashed} {found.openings}", s.fence, flush=True)
    s.say("assistant", "hello")
    if os.path.exists("die"):
        os.kill(os.getpid(), 9)
"""


def test_a_python_agent_below_run_joins_the_opening_that_was_made_for_it(shell: Shell) -> None:
    run = ("session", "run", "job", "--", sys.executable, "-c", AGENT)
    first = shell.run(*run)
    assert (first.returncode, first.stdout.split()) == (0, ["fresh", "1"]), first.stderr
    second = shell.run(*run)
    assert second.stdout.split() == ["completed", "False", "1", "2"], second.stderr
    (shell.place / "die").touch()
    third = shell.run(*run)
    assert (third.returncode, third.stdout.split()) == (137, ["completed", "False", "2", "3"])
    assert shell.data("session", "show", "job")["reason"] == "ended by SIGKILL"
    (shell.place / "die").unlink()
    assert shell.run(*run).stdout.split() == ["failed", "False", "3", "4"]
    assert shell.data("session", "show", "job")["openings"] == 4


def test_a_command_that_left_an_effect_in_doubt_leaves_its_session_waiting(shell: Shell) -> None:
    sending = """
        import os, standfast
        with standfast.open() as sf, sf.session("job") as s:
            s.effect("mail.send", {"to": "ada"}, do=lambda call: os.kill(os.getpid(), 9))
    """
    done = shell.run("session", "run", "job", "--", sys.executable, "-c", textwrap.dedent(sending))
    assert done.returncode == 137, done.stderr
    shown = shell.data("session", "show", "job")
    assert (shown["state"], shown["reason"]) == ("waiting", "ended by SIGKILL; mail.send is in doubt")
    opened = shell.data("session", "open", "job")
    assert [one["tool"] for one in opened["resumed"]["in_doubt"]] == ["mail.send"]


def test_below_run_a_script_may_end_its_session_its_own_way(here: Shell) -> None:
    script = f"{STANDFAST} session end --waiting 'a review'; exit 0"
    done = here.run("session", "run", "job", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    shown = here.data("session", "show", "job")
    assert (shown["state"], shown["reason"]) == ("waiting", "a review")


def test_take_asks_first_if_the_holder_is_alive(here: Shell) -> None:
    """002-46: a person redirects a running session; its old holder is refused."""
    other = Shell(here.place, STANDFAST_ACTOR="bob")
    here.data("session", "open", "job")
    refused = other.run("session", "take", "job")
    assert refused.returncode == 2
    assert "ada is alive and holds job" in refused.stderr
    assert "standfast session take job --yes" in refused.stderr
    assert here.data("session", "show", "job")["holder"] == "a:ada"
    taken = other.data("session", "take", "job", "--yes")
    assert (taken["state"], taken["reason"]) == ("waiting", "taken from ada by bob")
    assert other.run("session", "take", "job").returncode == 4
    assert other.data("session", "open", "job")["holder"] == "a:bob"
    late = here.run("session", "end", "job")
    assert late.returncode == 75
    assert "held by bob" in late.stderr


def test_take_asks_a_person_on_a_terminal(here: Shell) -> None:
    here.data("session", "open", "job")
    for answer, code in ((b"n\n", 130), (b"y\n", 0)):
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(here.place)
            words = [sys.executable, "-c", MAIN, "session", "take", "job"]
            os.execvpe(sys.executable, words, {**here.environment, "STANDFAST_ACTOR": "bob"})
        seen = b""
        while b"End its hold?" not in seen:
            seen += os.read(terminal, 1000)
        os.write(terminal, answer)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
        os.close(terminal)
    assert here.data("session", "show", "job")["state"] == "waiting"


def test_a_session_is_held_while_a_process_lives(here: Shell) -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        opened = here.data("session", "open", "job", "--while", str(sleeper.pid))
        assert f":{sleeper.pid}:" in opened["holder"]
        other = Shell(here.place, STANDFAST_ACTOR="bob")
        assert other.run("session", "open", "job").returncode == 75
        sleeper.kill()
    resumed = other.data("session", "open", "job")["resumed"]
    assert (resumed["crashed"], resumed["state"]) == (True, "active")
    gone = here.run("session", "open", "other", "--while", str(sleeper.pid))
    assert gone.returncode == 2
    assert "there is no process" in gone.stderr


REFUSED = {
    "no session named": (("session", "say", "hello"), 2, "which session?"),
    "too many words": (("session", "say", "job", "hello", "there"), 2, "in quotes"),
    "unknown": (("session", "show", "missing"), 3, "there is no session 'missing'"),
    "unknown to say": (("session", "say", "missing", "hello"), 3, "there is no session"),
    "no command": (("session", "run", "job"), 2, "COMMAND"),
    "nothing to resume": (("session", "resume", "job"), 2, "standfast session run job -- COMMAND"),
    "bad json": (("session", "say", "job", "{", "--content-json"), 2, "content: line 1"),
    "empty key": (("session", "open", ""), 2, "a session's key is empty"),
    "bad place": (("session", "list", "--after", "x"), 2, "not a cursor of this list"),
    "bad term": (("session", "open", "job", "--for", "soon"), 2, "'soon' is not a duration"),
    "two ends": (("session", "end", "job", "--failed", "a", "--waiting", "b"), 2, "either"),
    "no such position": (("session", "fork", "job", "new", "--at", "7"), 2, "no position 7"),
}


def test_a_refused_command_has_its_message_and_exit_code(here: Shell) -> None:
    here.data("session", "open", "job")
    for what, (words, code, wanted) in REFUSED.items():
        done = here.run(*words)
        assert (done.returncode, done.stdout) == (code, ""), f"{what}: {done.stderr}"
        assert wanted in done.stderr, what


def test_a_list_is_paged_and_scopes_are_separate(here: Shell) -> None:
    for n in range(3):
        here.data("session", "open", f"k{n}")
    first = json.loads(here.run("session", "list", "--limit", "2", "--json").stdout)
    rest = json.loads(here.run("session", "list", "--limit", "2", "--after", first["next"], "--json").stdout)
    assert [one["key"] for one in first["data"] + rest["data"]] == ["k2", "k1", "k0"]
    assert rest["next"] is None
    repository = here.place / "repository"
    repository.mkdir()
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    inside = Shell(repository, STANDFAST_DATA_DIR=here.environment["STANDFAST_DATA_DIR"])
    inside.data("session", "open", "here")
    # A list has all sessions that its keys would resume. A session without a repository can be resumed from any.
    assert [one["key"] for one in inside.data("session", "list")] == ["here", "k2", "k1", "k0"]
    assert [one["key"] for one in inside.data("session", "list", "--global")] == ["k2", "k1", "k0"]
    other = here.place / "other"
    other.mkdir()
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    elsewhere = Shell(other, STANDFAST_DATA_DIR=here.environment["STANDFAST_DATA_DIR"])
    assert [one["key"] for one in elsewhere.data("session", "list")] == ["k2", "k1", "k0"]
    assert len(elsewhere.data("session", "list", "--all")) == 4
    assert len(here.data("session", "list")) == 4


def test_the_reason_of_a_waiting_session_is_the_one_of_now(shell: Shell) -> None:
    """002-18: a denied request is not shown as waiting in any command about sessions."""
    with shell.open() as sf:
        with pytest.raises(standfast.ApprovalRequired) as caught, sf.session("ship") as s:
            s.effect("tf.apply", {"a": 1}, approve=True, do=lambda call: 1)
        sf.approvals.deny(caught.value.approval_id, approver="bob", rationale="not on a Wednesday")
    for words in (("session", "list", "--all"), ("session", "show", "ship"), ("session", "show", "ship", "--json")):
        said = shell.run(*words).stdout
        assert "denied by bob: not on a Wednesday" in said
        assert "has been asked for" not in said
