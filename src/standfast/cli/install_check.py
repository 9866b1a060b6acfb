"""Test what `standfast install` installed: run the hook and the server once, as the agent would."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from standfast.cli.open_store import opened

if TYPE_CHECKING:
    from standfast.admin.agents.install import Plan
    from standfast.config import Settings

TEST_MAX_S = 30
SERVER_MAX_S = 90
"""The server needs a second of CPU to start, and longer on a busy machine."""


def tested(settings: Settings, plans: list[Plan], program: str) -> dict[tuple[str, str], str]:
    """Run each installed hook and the server once. The problem of each part, empty if it works."""
    found = {
        (plan.agent.name, "hooks"): _hook_problem(settings, plan, program) for plan in plans if "hooks" in plan.parts
    }
    served = [plan for plan in plans if "mcp" in plan.parts]
    if served:
        problem = _server_problem(program)
        found |= {(plan.agent.name, "mcp"): problem for plan in served}
    return found


def _server_problem(program: str) -> str:
    """Send `initialize` to the MCP server, as an agent does. The problem, or an empty text."""
    import json
    import subprocess

    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "install", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + "\n"
    try:
        ran = subprocess.run(
            [program, "mcp"], input=line.encode(), capture_output=True, timeout=SERVER_MAX_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the MCP server does not answer: {error}"
    if b'"serverInfo"' in ran.stdout:
        return ""
    last = ran.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it printed nothing"]
    return f"the MCP server does not answer: {last[0][:200]}"


def _hook_problem(settings: Settings, plan: Plan, program: str) -> str:
    """Run the installed hook once and look for its record. The problem, or an empty text."""
    import json
    import subprocess

    from standfast.admin.agents.catalogue import hook_command
    from standfast.interchange.hooks import spool
    from standfast.interchange.hooks.record import Hooks

    native = f"install-{os.urandom(3).hex()}"
    payload = {"hook_event_name": "InstallCheck", "session_id": native, "cwd": os.getcwd()}
    line = hook_command(program, plan.agent.name)
    try:
        ran = subprocess.run(
            ["/bin/sh", "-c", line],
            input=json.dumps(payload).encode(),
            capture_output=True,
            timeout=TEST_MAX_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the installed command does not run: {error}"
    if ran.returncode != 0 or ran.stdout:
        printed = ran.stdout[:200].decode(errors="replace")
        return f"the installed command exits with {ran.returncode} and prints {printed!r}"
    spool.key(settings.data_dir)
    with opened(settings) as sf:
        if Hooks(sf._store).checked(plan.agent.name, native):
            return ""
    return "the installed command runs, but its record is not in the store: standfast doctor"
