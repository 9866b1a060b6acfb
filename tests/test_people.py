"""What only a person may do: refused to agents by one list of methods, whatever command reaches them."""

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

MAIN = "import sys; from standfast.cli import main; sys.exit(main())"
AGENT = {"CLAUDECODE": "1"}
REFUSED = (
    "approve zzzzzz",
    "deny zzzzzz",
    "db sqlite other.db",
    "db pg postgresql://nobody@127.0.0.1:1/x",
    "db roles",
    "db trust .",
    "gate remove git*",
    "install claude-code --remove",
    "state verify",
    "state verify branch",
    "store reset",
)
"""A line of every command that is refused to agents, whatever the store holds."""
SOMETIMES = ("effect resolve", "loop add", "apply", "session resume", "install", "store create")
"""Refused for some of what they are given: each has its own test."""
NOUNS = (
    "agent approval artifact bench brief completion credit daemon decide decision demo doctor event help hook import"
    " lock mail mcp once prove search sql status task timeline verify webhook where"
)
OPEN = {
    *NOUNS.split(),
    "db status",
    *(f"effect {verb}" for verb in ("begin", "done", "fail", "list", "show", "undo")),
    *(f"gate {verb}" for verb in ("add", "list", "test")),
    *(f"loop {verb}" for verb in ("cancel", "list", "pause", "remove", "resume", "run", "runs", "show")),
    *(f"session {verb}" for verb in ("end", "fork", "list", "open", "run", "say", "show", "take")),
    *(f"state {verb}" for verb in ("delete", "get", "list", "set", "swap")),
    *(f"store {verb}" for verb in ("list", "show")),
}
"""Open to agents: a noun with all of its verbs, or single verbs."""


def run(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "STANDFAST_DATA_DIR": str(cwd / "data"), **variables}
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words],
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=60,
    )


@pytest.fixture
def sf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[standfast.Standfast]:
    monkeypatch.chdir(tmp_path)
    with standfast.open(data_dir=tmp_path / "data") as store:
        yield store


def _commands() -> Iterator[str]:
    import click

    house = build()
    ctx = click.Context(house)
    for name in house.list_commands(ctx):
        command = house.get_command(ctx, name)
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
    """A new command has to be sorted into one of the lists above."""
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
def test_another_word_for_a_command_reaches_the_same_list(sf: standfast.Standfast, tmp_path: Path, line: str) -> None:
    """R29: what an alias runs is refused too; a word that runs nothing changes nothing."""
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
    """R29, RULES 12: whichever agent it is."""
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
        assert run("state", "verify", "branch", cwd=tmp_path).returncode == 1
    assert not (tmp_path / "VERIFIED").exists()


def test_an_agent_resolves_only_what_needed_no_approval(sf: standfast.Standfast, tmp_path: Path) -> None:
    """RULES 4: an agent may resolve with evidence, but not an effect that a person had to approve."""
    for key in ("free", "approved"):
        if key == "approved":
            with pytest.raises(ApprovalRequired) as caught:
                sf.effects.begin("pay", {}, key=key, approve=True, holder="p:0:0:x")
            sf.approvals.grant(caught.value.approval_id, approver="ada")
        sf.effects.begin("pay", {}, key=key, approve=key == "approved", for_us=1)
    words = ("--not-applied", "--evidence", "looked")
    assert run("effect", "resolve", "free", *words, cwd=tmp_path, **AGENT).returncode == 0
    refused = run("effect", "resolve", "approved", *words, cwd=tmp_path, **AGENT)
    assert refused.returncode == 5, refused.stderr
    assert run("effect", "resolve", "approved", *words, cwd=tmp_path).returncode == 0


def test_an_agent_adds_no_loop_whose_command_a_gate_stops(sf: standfast.Standfast, tmp_path: Path) -> None:
    """R29: the daemon would run it later, where no hook looks. `apply` is no way around."""
    sf.gates.add("git push*")
    for command in (("git", "push"), ("sh", "-c", "cd x && git push")):
        refused = run("loop", "add", "l", "--every", "1h", "--", *command, cwd=tmp_path, **AGENT)
        assert refused.returncode == 5, refused.stderr
    (tmp_path / "plan.toml").write_text('[[loops]]\nname = "l"\nevery = "1h"\ncommand = ["git", "push"]\n')
    refused = run("apply", "plan.toml", "--commit", "--key", "k", cwd=tmp_path, **AGENT)
    assert refused.returncode == 5, refused.stderr
    assert run("loop", "add", "fetch", "--every", "1h", "--", "git", "fetch", cwd=tmp_path, **AGENT).returncode == 0
    assert run("loop", "add", "l", "--every", "1h", "--", "git", "push", cwd=tmp_path).returncode == 0


def test_a_program_that_uses_the_library_is_not_a_command(sf: standfast.Standfast) -> None:
    """An agent runs its user's tests: `sf.approvals.grant` in them works. docs/operating/security.md says so."""
    assert people.refusal("answers an approval") is None


# -- stored commands -----------------------------------------------------------------------------------


def test_a_command_that_an_agent_stored_does_not_run_unseen(tmp_path: Path) -> None:
    """R32: `state verify` shows the command of another actor and asks; without a terminal it does not run."""
    run("state", "set", "branch", "main", "--verify", "touch VERIFIED", cwd=tmp_path, **AGENT)
    done = run("state", "verify", "branch", cwd=tmp_path)
    assert done.returncode == 1
    assert "standfast state verify branch" in done.stdout
    assert not (tmp_path / "VERIFIED").exists()
    run("state", "set", "mine", "main", "--verify", "touch MINE", cwd=tmp_path)
    assert run("state", "verify", "mine", cwd=tmp_path).returncode == 0
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


def test_a_confirmed_command_runs_and_is_not_asked_for_again(tmp_path: Path) -> None:
    """R32: before its first run. Another command is asked for again."""
    from tests.test_approvals_cli import Person

    run("state", "set", "branch", "main", "--verify", "echo x >> VERIFIED", cwd=tmp_path, **AGENT)
    person = Person("state", "verify", "branch", data=tmp_path / "data")
    seen = person.reads_until("Type yes to run it: ")
    assert "│ echo x >> VERIFIED" in seen
    assert "claude-code" in seen
    person.type("yes\n")
    assert person.leaves()[0] == 0
    assert run("state", "verify", "branch", cwd=tmp_path).returncode == 0
    assert (tmp_path / "VERIFIED").read_text() == "x\nx\n"
    run("state", "set", "branch", "main", "--verify", "echo y >> VERIFIED", cwd=tmp_path, **AGENT)
    assert run("state", "verify", "branch", cwd=tmp_path).returncode == 1
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

    root = Path(__file__).parent.parent
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
