"""`standfast install`: it adds our entries to an agent's settings and changes no other byte."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import standfast
from standfast.admin.agents import doctor, hook_entries, install, jsonc, mcp_entries, skills
from standfast.admin.agents.catalogue import AGENTS, BY_NAME, is_ours
from standfast.cli import install as install_cli
from standfast.errors import Conflict, InvalidInput
from tests.hooks import PROGRAM, environment

CLAUDE, CODEX, GEMINI, OPENCODE = (BY_NAME[name] for name in ("claude-code", "codex", "gemini-cli", "opencode"))
WITH_HOOKS = [agent for agent in AGENTS if agent.events]

# Settings in the various forms of real users: order, indentation, comments, line ends.
SETTINGS = {
    "empty object": "{}",
    "empty object, line end": "{}\n",
    "spaces in it": "{  }\n",
    "a line in it": "{\n}\n",
    "two spaces": '{\n  "model": "opus",\n  "cleanupPeriodDays": 99\n}\n',
    "four spaces, no line end": '{\n    "model": "opus",\n    "env": {\n        "A": "1"\n    }\n}',
    "tabs": '{\n\t"model": "opus",\n\t"permissions": {\n\t\t"allow": [\n\t\t\t"Bash(ls:*)"\n\t\t]\n\t}\n}\n',
    "CRLF": '{\r\n  "model": "opus",\r\n  "hooks": {\r\n    "Stop": []\r\n  }\r\n}\r\n',
    "one line": '{"model":"opus","hooks":{"Stop":[{"hooks":[{"type":"command","command":"say done"}]}]}}',
    "comments": '// mine\n{\n  // the model\n  "model": "opus", /* mine */\n  "theme": "dark" // at night\n}\n//\n',
    "trailing commas": '{\n  "model": "opus",\n  "hooks": {\n    "Stop": [\n      {"hooks": [],},\n    ],\n  },\n}\n',
    "empty hooks": '{\n  "hooks": {},\n  "model": "opus"\n}\n',
    "an empty event": '{\n  "hooks": {\n    "PreToolUse": [ ]\n  }\n}\n',
    "only a comment in hooks": '{\n  "hooks": {\n    // none yet\n  }\n}\n',
    "hooks of others": json.dumps(
        {
            "model": "opus",
            "hooks": {
                "PreToolUse": [
                    {"matcher": "Bash", "hooks": [{"type": "command", "command": "~/bin/check.sh", "timeout": 3}]},
                    {"matcher": "*", "hooks": [{"type": "command", "command": "/opt/bd/bin/bd prime"}]},
                ],
                "BeforeTool": [{"matcher": "*", "hooks": [{"type": "command", "command": "x", "name": "x"}]}],
                "SessionStart": [{"hooks": [{"type": "command", "command": "standfast-not-me hook claude-code"}]}],
            },
            "statusLine": {"type": "command", "command": "date"},
        },
        indent=2,
    ),
    "unicode": '{\n  "äöü": "😀 \\u00e9 \\"quoted\\" // no comment",\n  "url": "https://a/b"\n}\n',
    "byte order mark": '\ufeff{\n  "model": "opus"\n}\n',
    "blank lines": '\n\n{\n\n  "model": "opus"\n\n}\n\n\n',
}
PATH = "/home/a da/.local/bin/standfast"


@pytest.mark.parametrize("agent", WITH_HOOKS, ids=lambda agent: agent.name)
@pytest.mark.parametrize("name", SETTINGS)
def test_in_and_out_leaves_every_byte_as_it_was(name: str, agent: Any, tmp_path: Path) -> None:
    """After two installations and a removal the file has its old bytes and mode, and no other file is left."""
    path = tmp_path / "settings.json"
    before = SETTINGS[name].encode()
    path.write_bytes(before)
    path.chmod(0o640)
    plan = install.install_plan(agent, str(path), PATH)
    install.apply(plan, keep_backup=True)
    after = path.read_bytes()
    assert hook_entries.state(agent, after.decode(), PATH) == "current"
    assert (path.stat().st_mode & 0o777) == 0o640
    assert not install.install_plan(agent, str(path), PATH).changes  # a second time changes nothing
    value = jsonc.plain(after.decode())
    assert set(agent.events) <= set(value["hooks"])
    install.apply(install.remove_plan(agent, str(path), PATH), keep_backup=False)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["settings.json"]


@pytest.mark.parametrize("agent", WITH_HOOKS, ids=lambda agent: agent.name)
@pytest.mark.parametrize("name", [name for name in SETTINGS if "empty" not in name and "only a" not in name])
def test_what_was_changed_meanwhile_stays(name: str, agent: Any) -> None:
    """If the file changed after the installation, removal deletes only our entries from it."""
    text = SETTINGS[name]
    mine = hook_entries.installed(agent, text, PATH)
    changed = mine.replace("opus", "sonnet").replace("A", "B")
    out = hook_entries.removed(agent, changed, text)
    assert out is not None
    if name in ("spaces in it", "a line in it"):  # an empty object stays an empty object
        assert jsonc.plain(out) == {}
    else:
        assert out == text.replace("opus", "sonnet").replace("A", "B").replace(": [ ]", ": []")


def test_only_our_handler_leaves_a_group_that_others_share() -> None:
    ours = {"type": "command", "command": "/opt/standfast hook claude-code"}
    group = {"matcher": "*", "hooks": [{"type": "command", "command": "a"}, ours, {"type": "command", "command": "b"}]}
    text = json.dumps({"hooks": {"Stop": [group]}}, indent=2)
    out = hook_entries.removed(CLAUDE, text)
    assert out is not None
    assert [one["command"] for one in jsonc.plain(out)["hooks"]["Stop"][0]["hooks"]] == ["a", "b"]


def test_an_older_installation_is_brought_up_to_date_not_doubled(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"model": "opus"}\n')
    install.apply(install.install_plan(CLAUDE, str(path), "/old/bin/standfast"), keep_backup=True)
    assert install.stand(CLAUDE, str(path), PATH).state == "stale"
    install.apply(install.install_plan(CLAUDE, str(path), PATH), keep_backup=True)
    text = path.read_text()
    assert "/old/bin" not in text
    assert text.count("hook claude-code") == len(CLAUDE.events)
    install.apply(install.remove_plan(CLAUDE, str(path), PATH), keep_backup=False)
    assert path.read_text() == '{"model": "opus"}\n'


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1',
        '{"a": 1} x',
        "[]",
        '{"hooks": []}',
        '{"hooks": {"Stop": {}}}',
        '{"a": 1, "a": 2}',
        "{'a': 1}",
        "[" * 300,
    ],
)
def test_a_file_that_cannot_be_parsed_is_refused_and_not_changed(text: str, tmp_path: Path) -> None:
    """The hint has the lines that the user must add by hand."""
    path = tmp_path / "settings.json"
    path.write_text(text)
    for plan in (install.install_plan, install.remove_plan):
        with pytest.raises(InvalidInput, match="cannot be edited"):
            plan(CLAUDE, str(path), PATH)
    with pytest.raises(InvalidInput) as refused:
        install.install_plan(CLAUDE, str(path), PATH)
    assert "hook claude-code" in refused.value.hint
    assert path.read_text() == text
    assert install.stand(CLAUDE, str(path), PATH).state == "unreadable"


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(InvalidInput, match="UTF-8"):
        install.install_plan(CLAUDE, str(path), PATH)


def test_a_file_that_install_created_is_removed_again(tmp_path: Path) -> None:
    for agent in AGENTS:
        path = tmp_path / agent.name / "deep" / "file"
        install.apply(install.install_plan(agent, str(path), PATH), keep_backup=True)
        assert path.stat().st_mode & 0o777 == 0o600
        install.apply(install.remove_plan(agent, str(path), PATH), keep_backup=False)
        assert not path.exists()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Dotfiles are often links into a repository."""
    real, link = tmp_path / "dotfiles.json", tmp_path / "settings.json"
    real.write_text("{}\n")
    link.symlink_to(real)
    install.apply(install.install_plan(CLAUDE, str(link), PATH), keep_backup=True)
    assert link.is_symlink()
    assert "hook claude-code" in real.read_text()


def test_a_file_changed_by_its_agent_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text("{}")
    plan = install.install_plan(CLAUDE, str(path), PATH)
    path.write_text('{"model": "new"}')
    with pytest.raises(Conflict, match="changed meanwhile"):
        install.apply(plan, keep_backup=True)
    assert path.read_text() == '{"model": "new"}'


def test_a_foreign_plugin_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "standfast.js"
    path.write_text("export const Mine = () => {}\n")
    with pytest.raises(InvalidInput, match="not standfast's"):
        install.install_plan(OPENCODE, str(path), PATH)
    assert not install.remove_plan(OPENCODE, str(path), PATH).changes


NAMES = st.sampled_from(["a", "b", "hooks ", "Stop", "x y", 'q"']) | st.text(max_size=4)
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
GROUPS = st.lists(
    st.builds(lambda command: {"hooks": [{"type": "command", "command": command}]}, st.text(max_size=6)), max_size=2
)


@settings(max_examples=30, deadline=None)
@given(
    rest=st.dictionaries(NAMES.filter(lambda name: name != "hooks"), VALUES, max_size=3),
    hooks=st.none() | st.dictionaries(st.sampled_from(["Stop", "PreToolUse", "BeforeTool", "Odd"]), GROUPS, max_size=3),
    indent=st.sampled_from([None, 1, 2, 4, "\t"]),
    agent=st.sampled_from(WITH_HOOKS),
)
def test_remove_restores_any_settings(rest: Any, hooks: Any, indent: Any, agent: Any) -> None:
    """Other entries keep their meaning; if no container was empty, removal restores the exact text."""
    value = {**rest, **({} if hooks is None else {"hooks": hooks})}
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    mine = hook_entries.installed(agent, text, PATH)
    assert hook_entries.installed(agent, mine, PATH) == mine
    assert install._others(agent, mine) == install._others(agent, text)
    out = hook_entries.removed(agent, mine)
    assert out is not None
    assert install._others(agent, out) == install._others(agent, text)
    whole = hooks is None or (hooks and all(hooks.values()))
    if whole and value:
        assert out == text


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        ("/usr/bin/standfast hook claude-code", True),
        ("'/home/a da/standfast' hook claude-code", True),
        ("standfast hook codex", False),
        ("standfast hook claude-code; rm x", False),
        ("my-standfast hook claude-code", False),
        ("'unfinished", False),
        (None, False),
    ],
)
def test_only_our_very_command_is_ours(command: Any, ours: bool) -> None:
    assert is_ours(command, "claude-code") == ours


# -- the MCP server and the skill ------------------------------------------------------------------------

TOML = {
    "empty": "",
    "a line": 'model = "gpt"\n',
    "no line end": 'model = "gpt"',
    "tables and comments": '# mine\nmodel = "gpt" # the best\n\n[profiles.a]\nmodel = "x"\n\n# last words\n',
    "other servers": '[mcp_servers.docs]\ncommand = "docs-mcp"\nargs = [\n  "--stdio",\n]\n',
    "CRLF": 'model = "gpt"\r\n[tui]\r\ntheme = "dark"\r\n',
    "a text that looks like ours": 'x = """\n[mcp_servers.other]\n"""\n',
}


def servers_of(agent: Any, settings: dict[str, str]) -> dict[str, str]:
    return TOML if agent is CODEX else settings


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_adding_and_removing_a_server_leaves_every_other_byte(agent: Any, tmp_path: Path) -> None:
    """The MCP server is registered with the same care as the hooks; a second time changes nothing."""
    for name, text in servers_of(agent, SETTINGS).items():
        path = tmp_path / "settings"
        path.write_bytes(text.encode())
        install.apply(install.install_plan(agent, str(path), PATH, ("mcp",)), keep_backup=True)
        mine = path.read_bytes().decode()
        assert mcp_entries.state(agent, mine, PATH) == "current", name
        assert not install.install_plan(agent, str(path), PATH, ("mcp",)).changes
        install.apply(install.install_plan(agent, str(path), "/new/standfast", ("mcp",)), keep_backup=True)
        assert install.stand(agent, str(path), "/new/standfast", "mcp").state == "current"
        install.apply(install.remove_plan(agent, str(path), "/new/standfast", ("mcp",)), keep_backup=False)
        assert path.read_bytes() == text.encode(), name
        assert [one.name for one in tmp_path.iterdir()] == ["settings"]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_what_its_owner_put_into_our_servers_entry_stays_until_it_goes(agent: Any) -> None:
    """A new path replaces only the old path. A timeout, `enabled` or a table that the user added stays."""
    text = mcp_entries.installed(agent, None, "/old/standfast")
    theirs = (
        text + "startup_timeout_sec = 30\n\n# theirs\n[tui]\ntheme = 1\n"
        if agent is CODEX
        else text.replace('"args"', '"timeout": 30,\n      "args"').replace("true", "false")
    )
    newer = mcp_entries.installed(agent, theirs, "/new/standfast")
    assert newer == theirs.replace("/old/", "/new/")
    assert mcp_entries.state(agent, newer, "/new/standfast") == "current"
    out = mcp_entries.removed(agent, newer)
    assert "standfast" not in out
    assert agent is not CODEX or out == "\n# theirs\n[tui]\ntheme = 1\n"


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        (CODEX, "mcp_servers = {}\n"),
        (CODEX, "model = \n"),
        (CODEX, '[mcp_servers.standfast]\ncommand = "theirs"\n'),
        (CODEX, 'mcp_servers = { standfast = { command = "/old/standfast", args = ["mcp"] } }\n'),
        (GEMINI, '{"mcpServers": []}'),
        (CLAUDE, '{"mcpServers": {"standfast": {"command": "theirs"}}}'),
        (OPENCODE, "{"),
    ],
)
def test_settings_without_a_place_for_our_server_are_refused(agent: Any, text: str, tmp_path: Path) -> None:
    path = tmp_path / "settings"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="cannot be edited") as refused:
        install.install_plan(agent, str(path), PATH, ("mcp",))
    assert "--no-mcp" in (refused.value.hint or "")
    assert path.read_text() == text


def test_a_foreign_skill_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "SKILL.md"
    path.write_text("---\nname: standfast\n---\nmine\n")
    with pytest.raises(InvalidInput, match="not standfast's"):
        install.install_plan(CLAUDE, str(path), PATH, ("skill",))
    assert not install.remove_plan(CLAUDE, str(path), PATH, ("skill",)).changes


def test_every_command_the_skill_names_exists() -> None:
    from standfast.cli.registry import BY_NAME as COMMANDS

    named = set(re.findall(r"`standfast ([a-z]+)", skills.TEXT))
    assert len(named) > 8
    assert named <= set(COMMANDS)


# -- the command ---------------------------------------------------------------------------------------


def run(home: Path, *words: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**environment(home / "data"), "HOME": str(home), **more}
    return subprocess.run([PROGRAM, "install", *words], env=env, cwd=cwd or home, capture_output=True, text=True)


def test_installed_in_one_command_tested_and_seen_by_doctor(tmp_path: Path) -> None:
    """One command installs. A test record of the installed line reaches the store; git's hooks are unchanged."""
    home = tmp_path / "home"
    (home / ".claude").mkdir(parents=True)
    hooks = home / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (home / ".claude" / "settings.json").write_text('{"cleanupPeriodDays": 7}\n')
    (home / ".claude.json").write_text('{"numStartups": 1}\n')
    shown = run(home, "claude-code", "--dry-run")
    assert shown.returncode == 0
    assert "+++" in shown.stdout
    assert "hook claude-code" in shown.stdout
    assert '"mcpServers"' in shown.stdout
    assert "name: standfast" in shown.stdout
    assert (home / ".claude" / "settings.json").read_text() == '{"cleanupPeriodDays": 7}\n'
    assert run(home, "claude-code", "--check").returncode == 1
    made = run(home, "claude", "--loop")
    assert made.returncode == 0, made.stderr
    with standfast.open(data_dir=home / "data") as sf:
        (loop,) = sf.rows("SELECT name, scope FROM loop")
    assert dict(loop) == {"name": "import-claude-code", "scope": ""}
    assert run(home, "claude-code", "--check").returncode == 0
    assert json.loads((home / ".claude.json").read_text())["mcpServers"]["standfast"]["args"] == ["mcp"]
    assert (home / ".claude" / "skills" / "standfast" / "SKILL.md").read_text() == skills.TEXT
    env = {**environment(home / "data"), "HOME": str(home)}
    rows = json.loads(subprocess.run([PROGRAM, "doctor", "--json"], env=env, cwd=home, capture_output=True).stdout)
    found = {row["id"]: row for row in rows["data"]}
    assert found["agent-claude-code"]["state"] == "ok"
    assert "after 7 days" in found["transcripts-claude-code"]["text"]
    removed = run(home, "claude-code", "--remove")
    assert removed.returncode == 0
    assert "standfast loop remove" in removed.stderr
    assert (home / ".claude" / "settings.json").read_text() == '{"cleanupPeriodDays": 7}\n'
    assert (home / ".claude.json").read_text() == '{"numStartups": 1}\n'
    assert [str(one.relative_to(home)) for one in sorted(home.rglob(".claude*/**/*")) if one.is_file()] == [
        ".claude/settings.json"
    ]
    assert list(hooks.iterdir()) == []


def test_without_a_name_it_finds_the_agents_installs_and_imports(tmp_path: Path) -> None:
    """003-40: one command does it all. A second run changes nothing and imports nothing twice."""
    nothing = run(tmp_path, PATH="/usr/bin:/bin")
    assert nothing.returncode == 3
    assert "no agent was found" in nothing.stderr
    (tmp_path / ".codex").mkdir()
    project = tmp_path / ".claude" / "projects" / "-srv-shop"
    project.mkdir(parents=True)
    said = {"type": "user", "sessionId": "s1", "uuid": "u1", "parentUuid": None, "cwd": "/srv/shop"}
    line = {**said, "timestamp": "2026-01-01T00:00:00Z", "message": {"role": "user", "content": "fix it"}}
    (project / "s1.jsonl").write_text(json.dumps(line) + "\n")
    made = run(tmp_path, "--no-test", PATH="/usr/bin:/bin")
    assert made.returncode == 0, made.stderr
    assert "found: claude-code, codex; not on this account: gemini-cli, opencode" in made.stderr
    assert "claude-code: 1 message in 1 new session imported from 1 transcript" in made.stderr
    assert "codex: no transcripts yet" in made.stderr
    assert "to remove it: standfast install --remove\n" in made.stderr
    assert run(tmp_path, "--check", PATH="/usr/bin:/bin").returncode == 0
    again = run(tmp_path, "--no-test", PATH="/usr/bin:/bin")
    assert "installed" not in again.stdout
    assert "1 had nothing new" in again.stderr
    gone = run(tmp_path, "--remove", PATH="/usr/bin:/bin")
    assert gone.returncode == 0
    assert "the store stays, and so do its copies: standfast where" in gone.stderr
    assert run(tmp_path, "--check", PATH="/usr/bin:/bin").returncode == 1


def test_a_skill_that_several_agents_read_is_removed_with_the_last_of_them(tmp_path: Path) -> None:
    """A part that was left out is not installed, and no agent's own state file is created."""
    for name in (".codex", ".gemini", ".claude"):
        (tmp_path / name).mkdir()
    skill = tmp_path / ".agents" / "skills" / "standfast" / "SKILL.md"
    assert run(tmp_path, "codex", "gemini-cli", "--no-test").returncode == 0
    assert run(tmp_path, "codex", "gemini-cli", "--check").returncode == 0
    assert run(tmp_path, "codex", "--remove").returncode == 0
    assert skill.exists()
    assert run(tmp_path, "gemini-cli", "--remove").returncode == 0
    assert not skill.parent.exists()
    assert sorted(os.listdir(tmp_path / ".codex") + os.listdir(tmp_path / ".gemini")) == []
    made = run(tmp_path, "gemini-cli", "claude-code", "--no-mcp", "--no-skill", "--no-test")
    assert made.returncode == 0
    assert "mcpServers" not in (tmp_path / ".gemini" / "settings.json").read_text()
    assert not skill.exists()
    assert run(tmp_path, "gemini-cli", "--check", "--no-mcp", "--no-skill").returncode == 0
    assert run(tmp_path, "gemini-cli", "--check").returncode == 1
    told = run(tmp_path, "claude-code", "--no-test")
    assert "claude mcp add" in told.stderr
    assert not (tmp_path / ".claude.json").exists()


def test_the_command_that_adds_the_server_installs_its_packages_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default install has no MCP packages, so the server of the printed command would not start."""
    agent = BY_NAME["claude-code"]
    assert install_cli._mcp(agent, "standfast") == "claude mcp add --scope user standfast -- standfast mcp"
    monkeypatch.setattr(install_cli, "find_spec", lambda name: None)
    assert install_cli._mcp(agent, "standfast").startswith("pip install 'mcp>=2.3,<3' && claude mcp add")


def test_a_server_whose_package_is_missing_is_left_out(tmp_path: Path) -> None:
    """The default install has no MCP package, and agents report a server that does not start at each start."""
    (tmp_path / ".gemini").mkdir()
    settings = tmp_path / ".gemini" / "settings.json"
    without = (
        "import sys; sys.modules['mcp'] = None; sys.argv[0] = sys.argv.pop(1)\n"
        "from standfast.cli import main; sys.exit(main())"
    )
    words = [sys.executable, "-c", without, PROGRAM, "install"]
    env = {**environment(tmp_path / "data"), "HOME": str(tmp_path)}
    made = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "pip install 'mcp>=2.3,<3' && standfast install" in made.stderr
    assert "mcpServers" not in settings.read_text()
    assert subprocess.run([*words, "--check"], env=env, cwd=tmp_path).returncode == 0
    assert run(tmp_path, "--no-test").returncode == 0
    assert "mcpServers" in settings.read_text()
    kept = subprocess.run([*words, "gemini-cli"], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert "current" in kept.stdout  # a server that is installed stays, and is tested


def test_one_question_covers_the_transcripts_of_all_agents(tmp_path: Path) -> None:
    for name in (".claude", ".gemini"):
        (tmp_path / name).mkdir()
    env = {**environment(tmp_path / "data"), "HOME": str(tmp_path)}
    parent, child = pty.openpty()
    words = [PROGRAM, "install", "--no-test"]
    with subprocess.Popen(words, env=env, cwd=tmp_path, stdin=child, stdout=child, stderr=child):
        os.close(child)
        os.write(parent, b"y\n")
        shown = b"".join(iter(lambda: _part(parent), b"")).decode()
    assert shown.count("[y/N]") == 1
    assert "next: standfast daemon install" in shown  # without a daemon the loops do not run
    assert "import the transcripts of claude-code, gemini-cli into the store every 10m?" in shown
    with standfast.open(data_dir=tmp_path / "data") as sf:
        names = [row["name"] for row in sf.rows("SELECT name FROM loop ORDER BY name")]
    assert names == ["import-claude-code", "import-gemini-cli"]


def _part(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # the other end is closed
        return b""


def test_a_projects_file_that_others_get_has_to_be_meant(tmp_path: Path) -> None:
    (tmp_path / ".git" / "objects").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    refused = run(tmp_path, "gemini-cli", "--scope", "project")
    assert refused.returncode == 2
    assert "--shared" in refused.stderr
    made = run(tmp_path, "claude-code", "--scope", "project", "--no-test")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / ".claude" / "settings.local.json").exists()
    assert not (tmp_path / ".claude" / "settings.json").exists()


def test_a_path_in_a_cache_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`uvx` runs from a cache: such a path vanishes, and with it every hook."""
    program = tmp_path / "uv" / "archive-v0" / "x" / "bin" / "standfast"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program)])
    with pytest.raises(InvalidInput, match="will vanish"):
        install.program()


def test_codex_passes_what_decides_the_store_on_to_our_server() -> None:
    """000-31: Codex gives an MCP server 12 variables and those that `env_vars` names."""
    text = mcp_entries.installed(CODEX, None, PATH)
    env = {"HOME": "/home/ada", "STANDFAST_DATA_DIR": "/data", "STANDFAST_ACTOR": "ada", "SECRET": "x"}
    passed = mcp_entries.environment(CODEX, text, env)
    assert passed == {"HOME": "/home/ada", "STANDFAST_DATA_DIR": "/data", "STANDFAST_ACTOR": "ada"}
    older = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("env_vars"))
    assert mcp_entries.state(CODEX, older, PATH) == "stale"
    assert mcp_entries.environment(CODEX, older, env) == {"HOME": "/home/ada"}
    assert mcp_entries.installed(CODEX, older, PATH) == text


@pytest.mark.parametrize("theirs", ['env_vars = ["MINE"]', 'env_vars = [\n  "MINE", # mine\n]'])
def test_variables_that_its_owner_passes_on_stay(theirs: str) -> None:
    text = mcp_entries.installed(CODEX, None, PATH)
    older = "\n".join(theirs if line.startswith("env_vars") else line for line in text.splitlines()) + "\n[tui]\n"
    newer = mcp_entries.installed(CODEX, older, PATH)
    assert mcp_entries.state(CODEX, newer, PATH) == "current"
    assert mcp_entries.environment(CODEX, newer, {"MINE": "1", "PGHOST": "db"}) == {"MINE": "1", "PGHOST": "db"}
    assert newer.endswith("\n[tui]\n")


# -- doctor --------------------------------------------------------------------------------------------


def words(home: Path) -> dict[str, doctor.Finding]:
    return {word.id: word for word in doctor.examine({}, None, {"HOME": str(home), "PATH": os.environ["PATH"]})}


@pytest.mark.parametrize("agent", [CODEX, CLAUDE], ids=lambda agent: agent.name)
def test_two_stores_of_one_agent_are_reported(agent: Any, tmp_path: Path) -> None:
    """000-18: its hooks write to one store, its MCP server to another."""
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "STANDFAST_DATA_DIR": str(tmp_path / "data")}
    hooks, mcp = Path(agent.path("user", env, "")), Path(str(agent.server_path("user", env, "")))
    hooks.parent.mkdir(parents=True)
    hooks.write_text(hook_entries.installed(agent, None, PATH))

    def told() -> list[tuple[str, str]]:
        return [(one.state, one.text) for one in doctor.examine({}, None, env) if one.id == f"store-{agent.name}"]

    text = mcp_entries.installed(agent, None, PATH)
    mcp.write_text(text)
    assert told() == []
    elsewhere = text.replace('args = ["mcp"]', f'args = ["mcp"]\nenv = {{ STANDFAST_DATA_DIR = "{tmp_path}/other" }}')
    elsewhere = elsewhere.replace('"args"', f'"env": {{"STANDFAST_DATA_DIR": "{tmp_path}/other"}}, "args"')
    mcp.write_text(elsewhere)
    ((state, words),) = told()
    assert state == "warn"
    assert f"hooks use {tmp_path}/data/standfast.db" in words
    assert f"MCP server uses {tmp_path}/other/standfast.db" in words
    if agent is CODEX:  # the form of earlier versions
        mcp.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("env_vars")))
        assert "MCP server uses" in told()[0][1]


def test_codex_is_installed_only_when_it_is_trusted(tmp_path: Path) -> None:
    """Codex skips untrusted hooks without a message; doctor reports them."""
    codex = tmp_path / ".codex"
    codex.mkdir()
    assert words(tmp_path)["agent-codex"].remedy == "standfast install codex"
    path = codex / "hooks.json"
    install.apply(install.install_plan(CODEX, str(path), install.program()), keep_backup=True)
    found = words(tmp_path)["agent-codex"]
    assert (found.state, "/hooks" in found.remedy) == ("warn", True)
    lines = [
        f'[hooks.state."{path}:{doctor._snake(event)}:{place}"]\n'
        f'trusted_hash = "{doctor.codex_hash(event, handler, matcher)}"\n'
        for event, place, handler, matcher in doctor._placed(str(path))
    ]
    (codex / "config.toml").write_text("".join(lines))
    assert words(tmp_path)["agent-codex"].state == "ok"
    for text, told in (
        ("".join(lines[1:]), "SessionStart is not trusted"),
        ("".join([*lines[1:], lines[0].replace("sha256:", "sha256:0")]), "SessionStart has changed since"),
        ("".join([*lines, "enabled = false\n"]), "SessionEnd is switched off"),
    ):
        (codex / "config.toml").write_text(text)
        found = words(tmp_path)["agent-codex"]
        assert (found.state, told in found.text) == ("warn", True), found


@pytest.mark.parametrize(
    ("event", "hash"),
    [
        ("PreToolUse", "4c303be5d14f6b7f17207f93b76130d9a42b5defb3d8958ec79a06f187649d46"),
        ("SessionEnd", "dfa16d48b42c54c502ffed691f644593cab3888cdf1a6a79857c049b610237c9"),
    ],
)
def test_the_hash_of_a_hook_is_the_one_codex_shows(event: str, hash: str) -> None:
    """The expected hashes are those that `hooks/list` of Codex 0.166.0 printed for these entries."""
    (group,) = jsonc.plain(hook_entries.installed(CODEX, None, "/opt/bin/standfast"))["hooks"][event]
    assert doctor.codex_hash(event, group["hooks"][0], group.get("matcher")) == f"sha256:{hash}"


def test_claude_code_refuses_a_call_whose_hook_does_not_answer() -> None:
    """R15: only the hook that judges calls may block. An older installation without this hook is updated."""
    text = hook_entries.installed(CLAUDE, None, PATH)
    closed = {
        event: [handler.get("onFailure") for group in groups for handler in group["hooks"]]
        for event, groups in jsonc.plain(text)["hooks"].items()
    }
    assert closed == {event: ["block" if event == "PreToolUse" else None] for event in CLAUDE.events}
    older = re.sub(r',\s*"onFailure": "block"', "", text)
    assert older != text
    assert hook_entries.state(CLAUDE, older, PATH) == "stale"
    assert jsonc.plain(hook_entries.installed(CLAUDE, older, PATH)) == jsonc.plain(text)
    for agent in (CODEX, GEMINI):
        assert "onFailure" not in hook_entries.installed(agent, None, PATH)


@pytest.mark.parametrize(
    ("agent", "file", "text"),
    [
        (CLAUDE, "settings.json", '{"disableAllHooks": true}'),
        (GEMINI, "settings.json", '{"hooksConfig": {"enabled": false}}'),
        (CODEX, "config.toml", "[features]\nhooks = false\n"),
    ],
)
def test_hooks_that_are_switched_off_are_reported(agent: Any, file: str, text: str, tmp_path: Path) -> None:
    directory = tmp_path / agent.home
    directory.mkdir()
    (directory / file).write_text(text)
    install.apply(install.install_plan(agent, str(directory / agent.user_file), install.program()), keep_backup=True)
    found = words(tmp_path)[f"agent-{agent.name}"]
    assert (found.state, "off" in found.text) == ("warn", True)


def test_a_hook_without_its_program_is_reported(tmp_path: Path) -> None:
    (tmp_path / ".gemini").mkdir()
    path = tmp_path / ".gemini" / "settings.json"
    install.apply(install.install_plan(GEMINI, str(path), "/gone/standfast"), keep_backup=True)
    assert "/gone/standfast" in words(tmp_path)["agent-gemini-cli"].text


@pytest.mark.parametrize(
    ("name", "text", "days"),
    [
        ("claude-code", "{}", 30),
        ("claude-code", '{"cleanupPeriodDays": 3650}', 3650),
        ("claude-code", "not JSON", 30),
        ("gemini-cli", "{}", 30),
        ("gemini-cli", '{"general": {"sessionRetention": {"enabled": true, "maxAge": "2w"}}}', 14),
        ("gemini-cli", '{"general": {"sessionRetention": {"enabled": false}}}', None),
    ],
)
def test_the_retention_of_transcripts_is_read_from_the_agents_settings(
    name: str, text: str, days: int | None, tmp_path: Path
) -> None:
    agent = BY_NAME[name]
    (tmp_path / agent.home).mkdir()
    (tmp_path / agent.home / "settings.json").write_text(text)
    assert doctor.retention_days(agent, {"HOME": str(tmp_path)}) == days


@pytest.mark.skipif(shutil.which("node") is None, reason="NOT SHOWN: node is not here")
def test_the_plugin_of_opencode_reports_calls_and_obeys_a_gate(tmp_path: Path) -> None:
    """The test runs the installed file as opencode runs it."""
    plugin = tmp_path / "standfast.mjs"
    plugin.write_text(hook_entries.plugin(install.program()))
    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf:
        sf.gates.add("git push*", scope="")
    script = """
import { Standfast } from "./standfast.mjs"
const shown = []
const client = { tui: { showToast: async ({ body }) => shown.push(body) } }
const p = await Standfast({ client, directory: process.cwd() })
await p.event({ event: { type: "session.created", properties: { info: { id: "ses_1" } } } })
await p.event({ event: { type: "session.created", properties: { info: { id: "ses_2", parentID: "ses_1" } } } })
await p["chat.message"]({ sessionID: "ses_1" }, { parts: [{ type: "text", text: "hello" }] })
await p["tool.execute.before"]({ tool: "bash", sessionID: "ses_2", callID: "c1" }, { args: { command: "ls" } })
await p["tool.execute.after"]({ tool: "bash", sessionID: "ses_2", callID: "c1" }, { output: "a.txt" })
let refused = ""
try {
  await p["tool.execute.before"]({ tool: "bash", sessionID: "ses_1", callID: "c2" }, { args: { command: "git push" } })
} catch (error) { refused = error.message }
const env = {}
await p["shell.env"]({ sessionID: "ses_2" }, { env })
await p.event({ event: { type: "session.idle", properties: { sessionID: "ses_1" } } })
console.log(JSON.stringify({ refused, env, shown }))
"""
    (tmp_path / "drive.mjs").write_text(script)
    ran = subprocess.run(["node", "drive.mjs"], cwd=tmp_path, env=environment(data), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert "person's approval" in told["refused"]
    (toast,) = told["shown"]  # opencode itself shows only the command, in red
    assert (toast["title"], toast["message"]) == ("standfast", told["refused"])
    assert told["env"] == {"STANDFAST_ACTOR": "opencode:ses_1"}
    with standfast.open(data_dir=data) as sf:
        calls = {row["call_id"]: row["status"] for row in sf.rows("SELECT call_id, status FROM tool_call")}
        assert calls == {"c1": "ok", "c2": "cancelled"}
        (session,) = sf.sessions.list(everywhere=True)
        assert (session.key, session.state) == ("opencode:ses_1", "waiting")


@pytest.mark.skipif(shutil.which("node") is None, reason="NOT SHOWN: node is not here")
def test_the_plugin_of_opencode_adds_a_line_about_mail(tmp_path: Path) -> None:
    """000-38: mail is shown below the answer of a tool, and below prompts until an agent takes it. No call is
    blocked.
    """
    (tmp_path / "standfast.mjs").write_text(hook_entries.plugin(install.program()))
    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf:
        sf.mail.send("opencode", "please look at #42", sender="reviewer")
    (tmp_path / "drive.mjs").write_text("""
import { Standfast } from "./standfast.mjs"
const p = await Standfast({ directory: process.cwd() })
const tool = { output: "a.txt" }, prompt = { parts: [{ type: "text", text: "go on" }] }
await p["tool.execute.after"]({ tool: "bash", sessionID: "ses_1", callID: "c1", args: {} }, tool)
await p["chat.message"]({ sessionID: "ses_1" }, prompt)
console.log(JSON.stringify([tool.output, prompt.parts[0].text]))
""")
    ran = subprocess.run(["node", "drive.mjs"], cwd=tmp_path, env=environment(data), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for text, own in zip(json.loads(ran.stdout), ("a.txt", "go on"), strict=True):
        assert text.startswith(f"{own}\n\nstandfast: 1 mail for you from reviewer")
        assert '"please look at #42"' in text


@pytest.mark.skipif(shutil.which("node") is None, reason="NOT SHOWN: node is not here")
@pytest.mark.parametrize("silence", ["exit 3", "echo not json", "kill -9 $$"])
def test_the_plugin_of_opencode_refuses_a_call_that_standfast_does_not_answer(tmp_path: Path, silence: str) -> None:
    """R15: a missing answer does not permit the call."""
    program = tmp_path / "standfast"
    program.write_text(f"#!/bin/sh\n{silence}\n")
    program.chmod(0o755)
    (tmp_path / "standfast.mjs").write_text(hook_entries.plugin(str(program)))
    (tmp_path / "drive.mjs").write_text("""
import { Standfast } from "./standfast.mjs"
const p = await Standfast({ directory: process.cwd() })
await p["tool.execute.after"]({ tool: "bash", sessionID: "ses_1", callID: "c0" }, { output: "a.txt" })
try {
  await p["tool.execute.before"]({ tool: "bash", sessionID: "ses_1", callID: "c1" }, { args: { command: "ls" } })
} catch (error) { console.log(error.message) }
""")
    ran = subprocess.run(["node", "drive.mjs"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "standfast did not answer" in ran.stdout
