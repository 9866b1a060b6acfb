"""The line that continues a session of a known agent: `cd ~/shop && claude --resume ID`."""

from __future__ import annotations

import os

from standfast.hints import word

_COMMANDS = {
    "claude-code": "claude --resume {}",
    "codex": "codex resume {}",
    "gemini-cli": "gemini --resume {}",
    "opencode": "opencode --session {}",
}


def resume_line(agent: str | None, key: str, cwd: str | None) -> str:
    """The line to paste; empty for a session that no known agent keeps under its own id."""
    command = _COMMANDS.get(agent or "")
    native = key.removeprefix(f"{agent}:")
    if command is None or native == key:
        return ""
    there = f"cd {_directory(cwd)} && " if cwd else ""
    return there + command.format(word(native))


def _directory(path: str) -> str:
    """A path, with ~ outside the quotes, because a shell does not expand it inside them."""
    home = os.path.expanduser("~")
    if path.startswith(home + os.path.sep) and word(path) == path:
        return "~" + path[len(home) :]
    return word(path)
