"""The supported agents, the paths of their settings files, and the hooks that standfast installs there."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Literal, NamedTuple

Scope = Literal["user", "project"]

TIMEOUT_S = 10
SKILL = "standfast/SKILL.md"


class Agent(NamedTuple):
    """One agent: its name, the paths of its settings, and the events of its hooks."""

    name: str
    program: str
    """The name of the agent's command."""
    home: str
    """The agent's directory under the home directory."""
    home_variable: str
    """The environment variable that names another directory."""
    user_file: str
    project_file: str
    """A file in the project directory. It is not committed to the repository unless `--shared` is given."""
    shared_file: str
    events: tuple[str, ...] = ()
    """Events for which standfast is a hook; empty for opencode, where standfast is a plugin."""
    tool_events: tuple[str, ...] = ()
    """Events whose entry has a pattern of tools."""
    timeout: int = TIMEOUT_S
    restart: str = ""
    """The manual steps after the installation."""
    user_servers: tuple[str, ...] = ()
    """Files with its MCP servers, below its directory: the first one that exists, else the last."""
    shared_servers: tuple[str, ...] = ()
    skills: str = ".agents/skills"

    def directory(self, environ: Mapping[str, str]) -> str:
        moved = environ.get(self.home_variable, "").strip()
        if moved and self.home_variable.endswith("_CLI_HOME"):
            return os.path.join(
                moved, self.home
            )  # the variable replaces the home directory, not the agent's directory in it
        return moved or os.path.join(environ.get("HOME") or os.path.expanduser("~"), self.home)

    def path(self, scope: Scope, environ: Mapping[str, str], project: str, *, shared: bool = False) -> str:
        """The settings file for our hooks."""
        if scope == "user":
            return os.path.join(self.directory(environ), self.user_file)
        return os.path.join(project, self.shared_file if shared else self.project_file)

    def server_path(
        self, scope: Scope, environ: Mapping[str, str], project: str, *, shared: bool = False
    ) -> str | None:
        """The settings file for our MCP server; None if the agent has only a shared file in a project."""
        if scope == "project":
            return os.path.join(project, _existing(project, *self.shared_servers)) if shared else None
        directory = self.directory(environ)
        if self.name == "claude-code" and not environ.get(self.home_variable, "").strip():
            directory = os.path.dirname(directory)  # Claude Code keeps this file beside its directory
        return os.path.join(directory, _existing(directory, *self.user_servers))

    def skill_path(self, scope: Scope, environ: Mapping[str, str], project: str, *, shared: bool = False) -> str | None:
        """The file for our skill. Codex, Gemini CLI and opencode share one directory."""
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
        restart="restart open sessions: they have no hooks yet",
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
        restart="start codex and trust the hooks of standfast when it asks, or with /hooks: it runs only trusted hooks",
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
        restart="start gemini again; it runs the hooks of a project only in a folder that you trust",
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
    """The command as one line for a shell. Older agents ignore separate arguments and would run the bare program."""
    return f"{shlex.quote(program)} hook {agent}"


def is_ours(command: object, agent: str) -> bool:
    """Whether a command line is our hook, with any path of standfast."""
    if not isinstance(command, str):
        return False
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    return len(words) == 3 and os.path.basename(words[0]) == "standfast" and words[1:] == ["hook", agent]
