"""One list has the methods that only a person may call. Every command that reaches one refuses agents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast.cli.app import build
from standfast.config import people
from standfast.errors import ApprovalRequired, InvalidInput
from tests import commands
from tests.commands import MAIN

AGENT = {"CLAUDECODE": "1"}
REFUSED = (
    "approve zzzzzz",
    "backup forget zzzzzz",
    "deny zzzzzz",
    "db sqlite other.db",
    "db move sqlite other.db --commit",
    "budget remove team",
    "db pg postgresql://other@127.0.0.1:1/x",
    "db roles",
    "db trust .",
    "gate pause git* --for 1h --why x",
    "gate remove git*",
    "install claude-code --remove",
    "state check",
    "state check branch",
    "store reset",
)
"""A line of every command that refuses agents on any store."""
SOMETIMES = (
    *("effect check", "effect resolve", "undo", "loop add", "apply", "session resume", "install", "store create"),
    *("budget set", "budget settle", "budget release", "budget doubt"),
    *("import text", "loop resume", "loop run"),
)
"""Refused for some of what they are given: each has its own test."""
NOUNS = (
    "agent approval artifact bench brief completion crash credit daemon decide decision demo doctor event export"
    " help hook import knowledge lock mail mcp once prove search show sql status task timeline top usage verify webhook"
    " where"
)
OPEN = {
    *NOUNS.split(),
    "db status",
    *(f"budget {verb}" for verb in ("holds", "list", "reserve", "show")),
    *(f"effect {verb}" for verb in ("begin", "done", "fail", "list", "show", "compensate")),
    *(f"backup {verb}" for verb in ("audit", "list", "show", "take", "test", "verify")),
    "restore",
    *(f"gate {verb}" for verb in ("add", "list", "resume", "test")),
    *(f"loop {verb}" for verb in ("cancel", "list", "output", "pause", "remove", "runs", "show")),
    *(f"session {verb}" for verb in ("end", "fork", "list", "open", "run", "say", "show", "take")),
    *(f"state {verb}" for verb in ("delete", "get", "list", "namespaces", "set", "swap")),
    *(f"store {verb}" for verb in ("list", "push", "show")),
}
"""Open to agents: a noun with all of its verbs, or single verbs."""


def run(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "STANDFAST_DATA_DIR": str(cwd / "data"), **variables}
    return commands.run(*words, environment=environment, cwd=cwd)


@pytest.fixture
def sf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[standfast.Standfast]:
    monkeypatch.chdir(tmp_path)
    with standfast.open(data_dir=tmp_path / "data") as store:
        yield store


def _commands() -> Iterator[str]:
    import click

    root = build()
    ctx = click.Context(root)
    for name in root.list_commands(ctx):
        command = root.get_command(ctx, name)
        verbs = command.list_commands(ctx) if isinstance(command, click.Group) else []
        yield from (f"{name} {verb}" for verb in verbs) if verbs else (name,)


@pytest.mark.parametrize("line", REFUSED)
def test_a_command_for_people_is_refused_to_an_agent(sf: standfast.Standfast, tmp_path: Path, line: str) -> None:
    """R29, 002-30: exit 5, and the message names the variable that marks the agent."""
    sf.gates.add("git*")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.suffix in (".toml", ".json")}
    done = run(*line.split(), "--json", cwd=tmp_path, **AGENT)
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert (done.returncode, done.stdout, error["code"]) == (5, "", "agent_present")
    assert "CLAUDECODE is set" in error["message"]
    assert "the environment of claude-code" in error["message"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.suffix in (".toml", ".json")} == before


def test_every_command_is_either_open_to_agents_or_refused() -> None:
    """A new command has to be added to one of the lists above."""
    lines = (line.split() for line in REFUSED)
    refused = {words[0] if words[0] in ("approve", "deny", "install") else " ".join(words[:2]) for words in lines}
    sorted_out = OPEN | refused | set(SOMETIMES)
    unsorted = [name for name in _commands() if name not in sorted_out and name.split()[0] not in OPEN]
    assert unsorted == []
    nouns = {name.split()[0] for name in _commands()}
    assert sorted_out - set(_commands()) - nouns == set(), "a command that is not there any more"


def test_the_one_list_names_every_method_that_refuses_and_no_other() -> None:
    """R29, RULES 9: each entry is used by the method itself, below the commands, so that no command goes around it."""
    import re

    root = Path(standfast.__file__).parent
    used: dict[str, list[str]] = {}
    for path in root.rglob("*.py"):
        for what in re.findall(r'(?:for_people|refusal|people\.refuse)\("([^"]+)"\)', path.read_text()):
            used.setdefault(what, []).append(path.relative_to(root).parts[0])
    assert set(used) == people.REFUSED
    only_commands = {what for what, packages in used.items() if set(packages) == {"cli"}}
    assert only_commands == {"runs stored commands"}, "a method below cli/ has to refuse"


@pytest.mark.parametrize(
    "line",
    ["approvals yes zzzzzz", "gates rm git*", "gate delete git*", "reject zzzzzz", "state check", "db use other.db"],
)
def test_an_alias_prints_the_same_list(sf: standfast.Standfast, tmp_path: Path, line: str) -> None:
    """R29: an agent cannot use an alias of a refused command; an unknown word changes nothing."""
    sf.gates.add("git*")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.suffix in (".toml", ".json")}
    done = run(*line.split(), cwd=tmp_path, **AGENT)
    assert done.returncode in (2, 5), done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.suffix in (".toml", ".json")} == before
    assert [gate.pattern for gate in sf.gates.list()] == ["git*"]


@pytest.mark.parametrize("variable", ["CODEX_CI", "GEMINI_CLI", "OPENCODE", "CURSOR_AGENT", "AI_AGENT"])
def test_the_message_names_the_variable_that_marks_the_agent(
    sf: standfast.Standfast, tmp_path: Path, variable: str
) -> None:
    """R29, RULES 12: this holds for every kind of agent."""
    sf.gates.add("git*")
    done = run("gate", "remove", "git*", cwd=tmp_path, **{variable: "1"})
    assert done.returncode == 5
    assert f"{variable} is set" in done.stderr


def test_an_agent_cannot_store_a_command_in_the_name_of_the_person(tmp_path: Path) -> None:
    """R32: STANDFAST_ACTOR with the person's name does not make the command theirs."""
    from standfast.config.actor import person

    me = person(os.environ)
    words = ("state", "set", "branch", "main", "--verify", "touch VERIFIED")
    for name in (me, f"{me}:x"):
        assert run(*words, cwd=tmp_path, STANDFAST_ACTOR=name, **AGENT).returncode == 0
        assert run("state", "check", "branch", cwd=tmp_path).returncode == 1
    assert not (tmp_path / "VERIFIED").exists()


def test_an_agent_resolves_only_what_needed_no_approval(sf: standfast.Standfast, tmp_path: Path) -> None:
    """RULES 4: an agent may resolve with evidence, but not an effect that a person had to approve."""
    for key in ("free", "approved"):
        if key == "approved":
            with pytest.raises(ApprovalRequired) as caught:
                sf.effects.begin("pay", {}, key=key, approve=True, holder="p:0:0:x")
            sf.approvals.grant(caught.value.approval_id, approver="ada")
        sf.effects.begin("pay", {}, key=key, approve=key == "approved", for_="1us")
    words = ("--not-applied", "--evidence", "looked")
    assert run("effect", "resolve", "free", *words, cwd=tmp_path, **AGENT).returncode == 0
    refused = run("effect", "resolve", "approved", *words, cwd=tmp_path, **AGENT)
    assert refused.returncode == 5, refused.stderr
    assert run("effect", "resolve", "approved", *words, cwd=tmp_path).returncode == 0


def test_an_agent_adds_no_loop_whose_command_a_gate_stops(sf: standfast.Standfast, tmp_path: Path) -> None:
    """R29: the daemon would run it later without hooks. `apply` refuses it too."""
    sf.gates.add("git push*")
    for command in (("git", "push"), ("sh", "-c", "cd x && git push")):
        refused = run("loop", "add", "l", "--every", "1h", "--", *command, cwd=tmp_path, **AGENT)
        assert refused.returncode == 5, refused.stderr
    (tmp_path / "plan.toml").write_text('[[loops]]\nname = "l"\nevery = "1h"\ncommand = ["git", "push"]\n')
    refused = run("apply", "plan.toml", "--commit", "--key", "k", cwd=tmp_path, **AGENT)
    assert refused.returncode == 5, refused.stderr
    words = ("loop", "add", "l", "--every", "1h", "--env", "WHAT=git push")
    assert run(*words, "--", "sh", "-c", "$WHAT", cwd=tmp_path, **AGENT).returncode == 5
    assert run("loop", "add", "fetch", "--every", "1h", "--", "git", "fetch", cwd=tmp_path, **AGENT).returncode == 0
    assert run("loop", "add", "l", "--every", "1h", "--", "git", "push", cwd=tmp_path).returncode == 0


def test_an_agent_starts_no_loop_whose_command_a_gate_stops(sf: standfast.Standfast, tmp_path: Path) -> None:
    """R29: an agent cannot pass a gate with a person's loop, or by `undo` of its pause."""
    sf.gates.add("git push*")
    assert run("loop", "add", "l", "--every", "1h", "--", "git", "push", cwd=tmp_path).returncode == 0
    assert run("loop", "run", "l", cwd=tmp_path, **AGENT).returncode == 5
    assert run("loop", "pause", "l", cwd=tmp_path, **AGENT).returncode == 0
    assert run("loop", "resume", "l", cwd=tmp_path, **AGENT).returncode == 5
    paused = next(event.seq for event in sf.journal.about(sf.loops.get("l").id) if event.type == "loop.paused")
    assert run("undo", str(paused), "--commit", cwd=tmp_path, **AGENT).returncode == 5
    assert (sf.loops.get("l").state, sf.runs.list("l")) == ("paused", [])
    assert run("loop", "resume", "l", cwd=tmp_path).returncode == 0


def test_a_gate_of_another_repository_stops_an_agents_loop(tmp_path: Path) -> None:
    """R29: the loop may run in any directory, so the gates of every repository count."""
    shop, other = tmp_path / "shop", tmp_path / "other"
    for place in (shop, other):
        subprocess.run(["git", "init", "-q", str(place)], check=True)
    data = {"STANDFAST_DATA_DIR": str(tmp_path / "data")}
    assert run("gate", "add", "git push*", cwd=shop, **data).returncode == 0
    words = ("loop", "add", "l", "--every", "1h", "--cwd", str(shop), "--", "git", "push")
    assert run(*words, cwd=other, **data, **AGENT).returncode == 5
    assert run(*words, cwd=other, **data).returncode == 0


def test_a_program_that_uses_the_library_is_not_a_command(sf: standfast.Standfast) -> None:
    """An agent that runs its user's tests may call `sf.approvals.grant` in them (docs/operating/security.md)."""
    assert people.refusal("answers an approval") is None


# -- stored commands -----------------------------------------------------------------------------------


def test_a_command_that_an_agent_stored_does_not_run_unseen(tmp_path: Path) -> None:
    """R32: `state check` shows the command of another actor and asks; without a terminal it does not run."""
    run("state", "set", "branch", "main", "--verify", "touch VERIFIED", cwd=tmp_path, **AGENT)
    done = run("state", "check", "branch", cwd=tmp_path)
    assert done.returncode == 1
    assert "standfast state check branch" in done.stdout
    assert not (tmp_path / "VERIFIED").exists()
    run("state", "set", "mine", "main", "--verify", "touch MINE", cwd=tmp_path)
    assert run("state", "check", "mine", cwd=tmp_path).returncode == 0
    assert (tmp_path / "MINE").exists()


def test_a_session_that_an_agent_started_is_not_resumed_unseen(tmp_path: Path) -> None:
    """R32: the same for `session resume`."""
    run("session", "run", "night", "--", "touch", "RUN", cwd=tmp_path, **AGENT)
    (tmp_path / "RUN").unlink()
    done = run("session", "resume", "night", cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    assert not (tmp_path / "RUN").exists()
    run("session", "run", "mine", "--", "touch", "MINE", cwd=tmp_path)
    (tmp_path / "MINE").unlink()
    assert run("session", "resume", "mine", cwd=tmp_path).returncode == 0
    assert (tmp_path / "MINE").exists()


def test_a_loop_that_an_agent_added_does_not_run_here_unseen(engine_url: str, tmp_path: Path) -> None:
    """R32: the same for `loop run --here`, also once an agent has changed the command of a person's loop."""

    def loop(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run("loop", *words, cwd=tmp_path, STANDFAST_DB_URL=engine_url, **variables)

    add, here = ("add", "job", "--every", "1h", "--", "touch"), ("run", "job", "--here")
    assert loop(*add, "RUN", **AGENT).returncode == 0
    done = loop(*here)
    assert (done.returncode, "standfast loop run job --here" in done.stderr) == (5, True), done.stderr
    assert json.loads(loop("runs", "--json").stdout)["data"] == []
    assert loop(*here, **AGENT).returncode == 0
    (tmp_path / "RUN").unlink()
    assert loop(*add, "MINE").returncode == 0
    assert loop(*here).returncode == 0
    assert (tmp_path / "MINE").exists()
    assert loop(*add, "CHANGED", **AGENT).returncode == 0
    assert loop(*here).returncode == 5
    assert not {"RUN", "CHANGED"} & set(os.listdir(tmp_path))


def test_an_agent_does_not_resume_what_a_gate_stops(sf: standfast.Standfast, tmp_path: Path) -> None:
    """R29: a gate that was added after the agent started the session stops its command too."""
    run("session", "run", "night", "--", "touch", "RUN", cwd=tmp_path, **AGENT)
    (tmp_path / "RUN").unlink()
    assert run("session", "resume", "night", cwd=tmp_path, **AGENT).returncode == 0
    (tmp_path / "RUN").unlink()
    sf.gates.add("touch*")
    assert run("session", "resume", "night", cwd=tmp_path, **AGENT).returncode == 5
    assert not (tmp_path / "RUN").exists()


def test_an_agent_with_a_terminal_does_not_confirm_a_stored_command(tmp_path: Path) -> None:
    """R32: an agent that opens a terminal for itself is refused like one without."""
    from tests.interfaces.test_approvals_cli import Person

    run("session", "run", "night", "--", "touch", "RUN", cwd=tmp_path)
    (tmp_path / "RUN").unlink()
    agent = Person("session", "resume", "night", data=tmp_path / "data", **AGENT)
    code, _, said = agent.leaves()
    assert (code, "CLAUDECODE is set" in said) == (5, True), said
    assert not (tmp_path / "RUN").exists()


def test_a_confirmed_command_runs_without_a_second_question(tmp_path: Path) -> None:
    """R32: the question comes before the first run. A changed command is asked for again."""
    from tests.interfaces.test_approvals_cli import Person

    run("state", "set", "branch", "main", "--verify", "echo x >> VERIFIED", cwd=tmp_path, **AGENT)
    person = Person("state", "check", "branch", data=tmp_path / "data")
    seen = person.reads_until("Type yes to run it: ")
    assert "│ echo x >> VERIFIED" in seen
    assert "claude-code" in seen
    person.type("yes\n")
    assert person.leaves()[0] == 0
    assert run("state", "check", "branch", cwd=tmp_path).returncode == 0
    assert (tmp_path / "VERIFIED").read_text() == "x\nx\n"
    run("state", "set", "branch", "main", "--verify", "echo y >> VERIFIED", cwd=tmp_path, **AGENT)
    assert run("state", "check", "branch", cwd=tmp_path).returncode == 1
    assert "y" not in (tmp_path / "VERIFIED").read_text()


# -- other people's directories ---------------------------------------------------------------------------


def test_no_child_interpreter_imports_from_the_current_directory(tmp_path: Path) -> None:
    """R26: `daemon start` in a clone with a `click.py` does not run it."""
    for name in ("click", "standfast", "apsw"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'PLANTED')!r}, 'w')\n")
    environment = {**os.environ, "STANDFAST_DATA_DIR": str(tmp_path / "data")}
    program = [sys.executable, "-P", "-c", MAIN, "daemon"]
    started = subprocess.run([*program, "start"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    stopped = subprocess.run([*program, "stop", "--now"], cwd=tmp_path, env=environment, capture_output=True)
    assert (started.returncode, stopped.returncode) == (0, 0), started.stderr
    assert not (tmp_path / "PLANTED").exists()


def test_every_child_interpreter_of_the_package_is_started_safely() -> None:
    """R26: `-m` only together with `-P`, in the systemd unit too."""
    import re

    from standfast.daemon import unit

    root = Path(__file__).parents[2]
    unsafe = [
        str(path.relative_to(root))
        for path in [*root.glob("src/**/*.py"), *root.glob("prove/**/*.py")]
        if re.search(r'sys\.executable,\s*"-m"', path.read_text())
    ]
    assert unsafe == []
    assert " -P -m standfast daemon run" in unit.text(environ={}, data_dir="/x", grace_s=1)


def test_a_data_directory_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """R35: before its configuration is read."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "config.toml").write_text(f'notify = ["touch", "{tmp_path}/NOTIFIED"]\n')
    for mode in (0o777, 0o770, 0o702):
        data.chmod(mode)
        with pytest.raises(InvalidInput, match="other users can write the data directory") as caught:
            standfast.open(data_dir=data)
        assert (caught.value.code, caught.value.hint) == ("configuration", f"chmod go-w {data}")
    data.chmod(0o755)
    standfast.open(data_dir=data).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT SHOWN: only root can give a directory to another user")
def test_a_data_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    """R35: its `notify` command would run as this user."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    os.chown(data, 65534, 65534)
    with pytest.raises(InvalidInput, match="belongs to uid 65534"):
        standfast.open(data_dir=data)
    assert run("status", cwd=tmp_path).returncode == 78


@pytest.mark.parametrize(
    ("content", "known"), [(None, []), ('["a", 7, "b"]', ["a", "b"]), ("{}", []), ('"a"', [])], ids=str
)
def test_confirmed_commands_are_read_as_a_list_of_hashes(tmp_path: Path, content: str | None, known: list[str]) -> None:
    """A file that is no such list confirms nothing."""
    from standfast.cli import command_consent

    if content is not None:
        (tmp_path / command_consent.FILE).write_text(content)
        (tmp_path / command_consent.FILE).chmod(0o600)
    assert command_consent._confirmed(str(tmp_path)) == known


def test_an_agent_may_set_and_lower_a_budget_and_not_raise_it(sf: standfast.Standfast, tmp_path: Path) -> None:
    """A higher limit, another window, another parent or a milder action lets a caller use more."""
    agent: dict[str, str] = {"cwd": tmp_path, **AGENT}  # type: ignore[dict-item]
    sf.budgets.set("all", tokens=9_000)
    made = ("budget", "set", "team", "--tokens", "1000", "--per", "day", "--within", "all", "--action", "block")
    assert run(*made, **agent).returncode == 0
    assert run("budget", "set", "team", "--tokens", "900", "--calls", "5", **agent).returncode == 0
    for more in ("--tokens 901", "--per week", "--within other", "--action warn", "--calls 6"):
        sf.budgets.set("other", tokens=1)
        done = run("budget", "set", "team", *more.split(), "--json", **agent)
        assert (done.returncode, json.loads(done.stderr)["error"]["code"]) == (5, "agent_present"), more
    team = sf.budgets.get("team")
    assert (team.limit.known, team.per, team.parent) == ({"tokens": 900, "calls": 5}, "day", "all")
    assert run("budget", "set", "team", "--tokens", "5000", cwd=tmp_path).returncode == 0


def test_an_agent_settles_its_own_hold_and_none_in_doubt(sf: standfast.Standfast, tmp_path: Path) -> None:
    sf.budgets.set("team", tokens=1_000)
    assert run("budget", "reserve", "team", "--tokens", "300", "--key", "own", cwd=tmp_path, **AGENT).returncode == 0
    assert run("budget", "settle", "own", "--tokens", "10", cwd=tmp_path, **AGENT).returncode == 0
    hold = sf.budgets.give_up(sf.budgets.reserve("team", tokens=300))
    for verb in ("settle", "release"):
        done = run("budget", verb, hold.id, "--json", cwd=tmp_path, **AGENT)
        assert (done.returncode, json.loads(done.stderr)["error"]["code"]) == (5, "agent_present")
    assert run("budget", "settle", hold.id, "--tokens", "20", cwd=tmp_path).returncode == 0
    assert sf.budgets.get("team").spent.tokens == 30
