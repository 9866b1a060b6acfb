"""`standfast top`: the fleet on one screen, in a real terminal of 80 and of 120 columns."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import standfast
from standfast.cli.render import width_of
from standfast.cli.top import Rows, lines
from standfast.clock import HOUR_US, ManualClock
from standfast.views.fleet import Fleet, Fleets, Member
from standfast.views.resume_lines import resume_line
from tests.hooks import PATIENT, PROGRAM, bash, enter, environment, payload
from tests.interfaces.test_mail_lines import Agent

PROMPT = payload("UserPromptSubmit", prompt="fix the flaky test")
WAIT_S = 60


def states(fleet: Fleet) -> list[tuple[str, str]]:
    return [(member.key, member.state) for member in fleet.members]


def test_waiting_sessions_come_first_and_a_crashed_one_has_the_line_that_resumes_it(
    engine_url: str, tmp_path: Path
) -> None:
    """000-16: after a crash or a reboot each session of a known agent says how to continue it."""
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        Agent(sf, "old").hook({**PROMPT, "cwd": "/srv/shop"})
        clock.advance(2 * HOUR_US)
        Agent(sf, "works").hook(PROMPT)
        Agent(sf, "works").hook(bash("PreToolUse", "pytest -q", id="t1"))
        with sf.session("waits") as s:
            s.pause("needs a key")
        found = Fleets(sf._store).look(everywhere=True)
        own = [one for one in states(found) if one[0].partition(":")[2] in ("old", "works") or one[0] == "waits"]
        assert own == [("waits", "waits"), ("claude-code:old", "crashed"), ("claude-code:works", "works")]
        by_key = {member.key: member for member in found.members}
        assert by_key["claude-code:old"].command == "cd /srv/shop && claude --resume old"
        assert by_key["claude-code:works"].doing == "Bash pytest -q"
        assert "needs a key" in by_key["waits"].doing
        assert [by_key[key].about for key in ("waits", "claude-code:works")] == ["waits", PROMPT["prompt"]]
        crashed = {item.command for item in sf.recovery.report(everywhere=True).of("session_crashed")}
        assert "cd /srv/shop && claude --resume old" in crashed


def test_an_agent_that_waits_for_a_prompt_is_not_crashed(engine_url: str, tmp_path: Path) -> None:
    """000-16: an idle agent sends no records, and its person may come back after hours."""
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        Agent(sf, "idle").hook(payload("SessionStart", source="startup"))
        killed = Agent(sf, "killed")
        killed.hook(PROMPT)
        killed.hook(payload("SessionStart", source="compact"))
        clock.advance(2 * HOUR_US)
        assert ("claude-code:killed", "crashed") in states(Fleets(sf._store).look(everywhere=True))
        killed.hook(payload("SessionStart", source="resume"))
        clock.advance(2 * HOUR_US)
        assert Fleets(sf._store).look(everywhere=True).members == []
        reasons = [sf.sessions.get(f"claude-code:{name}").reason for name in ("idle", "killed")]
        assert reasons == ["it waits for a prompt", "it waits for a prompt"]


def test_a_waiting_row_names_the_action_to_approve_and_not_the_last_call(sf: standfast.Standfast) -> None:
    """000-16: the agent continues with other calls while the request waits."""
    agent = Agent(sf, "asks")
    agent.hook(PROMPT)
    planned = sf.effects.plan("Bash", {"command": "git push origin HEAD"}, session=agent.name)
    asked = sf.approvals.request(planned.id)
    agent.hook(bash("PreToolUse", "ls", id="t1"))
    found = {member.key: member for member in Fleets(sf._store).look(everywhere=True).members}[agent.name]
    assert (found.state, found.doing) == ("waits", "needs approval: git push origin HEAD")
    assert found.command == f"standfast approve {asked.id[-6:]}"


def test_a_call_without_an_id_is_shown_too(sf: standfast.Standfast) -> None:
    """Gemini CLI sends no ids, so its calls have no rows: the journal has them."""
    agent = Agent(sf, "s1", agent="gemini-cli")
    agent.hook(payload("BeforeAgent", prompt="sort my notes"))
    agent.hook(payload("BeforeTool", tool_name="run_shell_command", tool_input={"command": "ls notes"}))
    found = {member.key: member for member in Fleets(sf._store).look(everywhere=True).members}[agent.name]
    assert found.doing == "run_shell_command ls notes"


def test_a_session_of_a_command_shows_its_key_and_the_command(sf: standfast.Standfast) -> None:
    """000-16: neither has a prompt or a tool call."""
    sf.sessions.open("nightly", command=["make", "all"])
    found = {member.key: member for member in Fleets(sf._store).look(everywhere=True).members}
    assert (found["nightly"].about, found["nightly"].doing) == ("nightly", "make all")


def test_each_known_agent_has_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert resume_line("claude-code", "claude-code:1", "/home/ada/shop") == "cd ~/shop && claude --resume 1"
    assert resume_line("codex", "codex:1", "/home/ada/my shop") == "cd '/home/ada/my shop' && codex resume 1"
    assert resume_line("gemini-cli", "gemini-cli:1", None) == "gemini --resume 1"
    assert resume_line("opencode", "opencode:ses_1; rm", "/srv") == "cd /srv && opencode --session 'ses_1; rm'"
    assert resume_line("coder", "fix-42", "/srv") == resume_line("codex", "fix-42", "/srv") == ""


def member(id: str, state: str = "works") -> Member:
    return Member(id, id, state, "claude-code", "ada/shop", 0, "fix it", "Bash ls", f"standfast session show {id}")


def test_a_row_stays_in_its_position_until_the_person_sorts() -> None:
    rows = Rows()
    first = rows.arranged(Fleet([member("b", "waits"), member("a"), member("c")], 0, 0))
    assert [one.id for one in first] == ["b", "a", "c"]
    then = rows.arranged(Fleet([member("c", "waits"), member("a"), member("d", "waits")], 0, 0))
    assert [(one.id, one.state) for one in then] == [("b", "ended"), ("a", "works"), ("c", "waits"), ("d", "waits")]
    rows.sort()
    after = rows.arranged(Fleet([member("c", "waits"), member("d", "waits"), member("a")], 0, 0))
    assert [one.id for one in after] == ["c", "d", "a"]


@pytest.mark.parametrize("width", [80, 120])
def test_a_frame_fits_its_terminal_and_cuts_no_command(width: int) -> None:
    long = member("x" * 6, "crashed").replace(doing="y" * 300, about="z" * 300, where="ada/a-rather-long-name")
    fleet = Fleet([long, *(member(str(n)) for n in range(50))], 3, 10_000_000)
    frame = lines(fleet, fleet.members, width, height=20)
    assert len(frame) == 20
    assert max(map(width_of, frame)) <= width
    assert "3 in other repositories" in frame[0]
    whole = lines(fleet, fleet.members, width)
    assert f"  {long.command}" in whole


def pictured(width: int) -> list[str]:
    """The frame of the guide."""
    minute = 60_000_000
    asked = "needs approval: git push origin HEAD"
    given = [
        ("waits", "claude-code", "ada/shop", 12, "fix the flaky test", asked, "standfast approve 9k2m4x"),
        ("crashed", "codex", "ada/api", 130, "add paging", "last: exec cargo test", "cd ~/api && codex resume 0199a3"),
        ("works", "claude-code", "ada/shop", 1, "update the docs", "Edit docs/index.md", ""),
        ("works", "gemini-cli", "notes", 0, "sort my notes", "", ""),
    ]
    fleet = [
        Member(f"ses_{n}", f"{agent}:{n}", state, agent, where, (200 - age) * minute, about, doing, command)
        for n, (state, agent, where, age, about, doing, command) in enumerate(given)
    ]
    return lines(Fleet(fleet, 0, 200 * minute), fleet, width)


def test_the_frames_of_the_guide_are_what_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    page = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "fleet.md").read_text()
    for width in (80, 120):
        assert "\n".join(pictured(width)) in page
    monkeypatch.undo()
    time.tzset()


class Terminal:
    """tmux with one window, whose program is `standfast top`."""

    def __init__(self, tmp_path: Path, columns: int) -> None:
        self.data = tmp_path / "data"
        self.socket = f"/tmp/sf-top-{os.getpid()}-{columns}.sock"  # a socket's path has at most 107 bytes
        env = {**environment(self.data), "HOME": str(tmp_path), "TERM": "screen"}
        words = ["-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", "24", "-c", str(tmp_path)]
        line = f"{shlex.quote(PROGRAM)} top; echo left with $?; exec cat"
        subprocess.run(["tmux", "-S", self.socket, *words, line], env=env, check=True, timeout=60)

    def run(self, *words: str) -> str:
        return subprocess.run(["tmux", "-S", self.socket, *words], capture_output=True, text=True, timeout=60).stdout

    def shows(self, what: Callable[[str], bool]) -> str:
        """Wait until the screen matches, and return it."""
        end = time.monotonic() + WAIT_S
        while not what(screen := self.run("capture-pane", "-p")):
            assert time.monotonic() < end, screen
        return screen


@pytest.fixture(params=[80, 120])
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    prompt = {**PROMPT, "session_id": "s1", "cwd": str(tmp_path)}
    enter("claude-code", prompt, tmp_path / "data", cwd=tmp_path, program=("-c", PATIENT))
    made = Terminal(tmp_path, request.param)
    yield made
    made.run("kill-server")


def test_it_is_live_in_a_plain_terminal_and_leaves_it_as_it_was(terminal: Terminal, tmp_path: Path) -> None:
    screen = terminal.shows(lambda text: "1 working" in text)
    assert "claude-code" in screen
    assert "q: quit" in screen
    prompt = {**PROMPT, "session_id": "s2", "cwd": str(tmp_path)}
    enter("claude-code", prompt, terminal.data, cwd=tmp_path, program=("-c", PATIENT))
    terminal.shows(lambda text: "2 working" in text)
    stop = payload("Stop", session="s1", cwd=tmp_path)
    enter("claude-code", stop, terminal.data, cwd=tmp_path, program=("-c", PATIENT))
    screen = terminal.shows(lambda text: "ended" in text)
    rows = [line.split()[0] for line in screen.splitlines() if line.startswith(("works", "ended"))]
    assert rows == ["ended", "works"]  # the first row kept its place
    terminal.run("send-keys", "s")
    terminal.shows(lambda text: "ended" not in text and "1 working" in text)
    terminal.run("send-keys", "q")
    screen = terminal.shows(lambda text: "left with 0" in text)
    assert "1 working" not in screen


def test_once_and_json_print_one_frame(tmp_path: Path) -> None:
    data = tmp_path / "data"
    empty = subprocess.run([PROGRAM, "top"], env=environment(data), cwd=tmp_path, capture_output=True, text=True)
    assert empty.returncode == 3
    enter("claude-code", {**PROMPT, "cwd": str(tmp_path)}, data, cwd=tmp_path, program=("-c", PATIENT))

    def top(*words: str) -> str:
        ran = subprocess.run(
            [PROGRAM, "top", *words], env=environment(data), cwd=tmp_path, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert "1 working" in top("--once")
    (row,) = json.loads(top("--json"))["data"]
    assert (row["key"], row["state"]) == ("claude-code:s1", "works")
    assert top().startswith("state\tagent")


def test_a_session_shows_the_line_that_resumes_it_before_its_lease_ends(tmp_path: Path) -> None:
    """000-16: after kill -9 of the agent its lease lasts up to an hour, and the person does not wait for that."""
    data = tmp_path / "data"
    enter("claude-code", {**PROMPT, "cwd": str(tmp_path)}, data, cwd=tmp_path, program=("-c", PATIENT))
    words = [PROGRAM, "session", "show", "claude-code:s1"]
    shown = subprocess.run(words, env=environment(data), cwd=tmp_path, capture_output=True, text=True)
    assert f"cd {tmp_path} && claude --resume s1" in shown.stdout


def test_a_waiting_session_names_the_command_that_ends_it(tmp_path: Path) -> None:
    """The agent of a denied request may have ended, and its session would wait without end."""
    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf, sf.session("fix-42") as s:
        s.pause("needs a key")
    words = [PROGRAM, "session", "show", "fix-42"]
    shown = subprocess.run(words, env=environment(data), cwd=tmp_path, capture_output=True, text=True)
    found = re.search(r"or: standfast (session end \w+)", shown.stderr)
    assert found is not None, shown.stderr
    ended = subprocess.run([PROGRAM, *found[1].split()], env=environment(data), cwd=tmp_path)
    assert ended.returncode == 0
