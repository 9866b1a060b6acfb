"""Which agents there are, where they keep their settings, and what those settings hold when we are installed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Literal, NamedTuple

Scope = Literal["user", "project"]

TIMEOUT_S = 10
SKILL = "standfast/SKILL.md"


class Agent(NamedTuple):
    """One agent: its name, its settings, its words."""

    name: str
    program: str
    """What its own command is called."""
    home: str
    """Its directory under the home directory."""
    home_variable: str
    """The variable that moves this directory."""
    user_file: str
    project_file: str
    """Below the project; not shared with others unless asked."""
    shared_file: str
    events: tuple[str, ...] = ()
    """Events whose hooks we are; empty where we are a plugin instead."""
    tool_events: tuple[str, ...] = ()
    """Those of them that take a pattern of tools."""
    timeout: int = TIMEOUT_S
    restart: str = ""
    """Steps that a person has to do by hand."""
    user_servers: tuple[str, ...] = ()
    """Where its MCP servers stand, below its directory: the first that is there, else the last."""
    shared_servers: tuple[str, ...] = ()
    skills: str = ".agents/skills"

    def directory(self, environ: Mapping[str, str]) -> str:
        moved = environ.get(self.home_variable, "").strip()
        if moved and self.home_variable.endswith("_CLI_HOME"):
            return os.path.join(moved, self.home)  # it replaces the home directory, not the one in it
        return moved or os.path.join(environ.get("HOME") or os.path.expanduser("~"), self.home)

    def path(self, scope: Scope, environ: Mapping[str, str], project: str, *, shared: bool = False) -> str:
        """The file our entries belong in."""
        if scope == "user":
            return os.path.join(self.directory(environ), self.user_file)
        return os.path.join(project, self.shared_file if shared else self.project_file)

    def server_path(
        self, scope: Scope, environ: Mapping[str, str], project: str, *, shared: bool = False
    ) -> str | None:
        """The file our MCP server belongs in; None where there is none that is yours alone."""
        if scope == "project":
            return os.path.join(project, _existing(project, *self.shared_servers)) if shared else None
        directory = self.directory(environ)
        if self.name == "claude-code" and not environ.get(self.home_variable, "").strip():
            directory = os.path.dirname(directory)  # the one file it keeps beside its directory
        return os.path.join(directory, _existing(directory, *self.user_servers))

    def skill_path(self, scope: Scope, environ: Mapping[str, str], project: str, *, shared: bool = False) -> str | None:
        """The file our skill belongs in. Three of the agents share a directory."""
        if scope == "project":
            return os.path.join(project, self.skills, SKILL) if shared else None
        if self.name == "claude-code":
            return os.path.join(self.directory(environ), "skills", SKILL)
        home = environ.get("HOME") or os.path.expanduser("~")
        if self.home_variable.endswith("_CLI_HOME"):
            home = environ.get(self.home_variable, "").strip() or home
        return os.path.join(home, self.skills, SKILL)


def _existing(directory: str, *names: str) -> str:
    return next((name for name in names if os.path.exists(os.path.join(directory, name))), names[-1])


AGENTS = (
    Agent(
        "claude-code",
        "claude",
        ".claude",
        "CLAUDE_CONFIG_DIR",
        "settings.json",
        ".claude/settings.local.json",
        ".claude/settings.json",
        (
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "PostToolUseFailure",
            "SubagentStart",
            "SubagentStop",
            "PreCompact",
            "Stop",
            "SessionEnd",
        ),
        ("PreToolUse", "PostToolUse", "PostToolUseFailure"),
        restart="sessions that are open now notice it when they are started again",
        user_servers=(".claude.json",),
        shared_servers=(".mcp.json",),
        skills=".claude/skills",
    ),
    Agent(
        "codex",
        "codex",
        ".codex",
        "CODEX_HOME",
        "hooks.json",
        ".codex/hooks.json",
        ".codex/hooks.json",
        (
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "SubagentStart",
            "SubagentStop",
            "PreCompact",
            "PostCompact",
            "Stop",
            "SessionEnd",
        ),
        ("PreToolUse", "PostToolUse"),
        restart="Codex runs no hook you have not trusted, and says nothing about it: start codex, type /hooks, and "
        "trust those of standfast",
        user_servers=("config.toml",),
        shared_servers=(".codex/config.toml",),
    ),
    Agent(
        "gemini-cli",
        "gemini",
        ".gemini",
        "GEMINI_CLI_HOME",
        "settings.json",
        ".gemini/settings.json",
        ".gemini/settings.json",
        ("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd"),
        ("BeforeTool", "AfterTool"),
        timeout=TIMEOUT_S * 1000,
        restart="start gemini again; in a folder it does not trust it runs no hook of the project's",
        user_servers=("settings.json",),
        shared_servers=(".gemini/settings.json",),
    ),
    Agent(
        "opencode",
        "opencode",
        ".config/opencode",
        "OPENCODE_CONFIG_DIR",
        "plugins/standfast.js",
        ".opencode/plugins/standfast.js",
        ".opencode/plugins/standfast.js",
        restart="start opencode again",
        user_servers=("opencode.jsonc", "opencode.json"),
        shared_servers=("opencode.jsonc", "opencode.json"),
    ),
)
BY_NAME = {agent.name: agent for agent in AGENTS}
ALIASES = {"claude": "claude-code", "claudecode": "claude-code", "gemini": "gemini-cli", "openai": "codex"}


def hook_command(program: str, agent: str) -> str:
    """One line for a shell: every version of every agent runs it so. (An older one that does not know
    separate arguments would run the bare program instead.)"""
    return f"{shlex.quote(program)} hook {agent}"


def is_ours(command: object, agent: str) -> bool:
    """Whether a command line is our hook, wherever standfast is installed."""
    if not isinstance(command, str):
        return False
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    return len(words) == 3 and os.path.basename(words[0]) == "standfast" and words[1:] == ["hook", agent]
