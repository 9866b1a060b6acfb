"""Payloads in the form that agents send, and a function that runs the hook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from standfast.interchange.hooks import payloads
from standfast.interchange.hooks.payloads import Heard

PROGRAM = str(Path(sysconfig.get_path("scripts")) / "standfast")
CAPTURED = Path(__file__).resolve().parents[2] / "shared" / "data" / "transcripts" / "hooks"


def payload(event: str, *, session: str = "s1", cwd: str | Path = "/", **more: Any) -> dict[str, Any]:
    return {"session_id": session, "cwd": str(cwd), "hook_event_name": event, **more}


def bash(event: str, command: str, *, id: str | None = "t1", **more: Any) -> dict[str, Any]:
    return payload(
        event, tool_name="Bash", tool_input={"command": command}, **({"tool_use_id": id} if id else {}), **more
    )


def heard(given: dict[str, Any], *, agent: str = "claude-code", at_us: int = 1_000_000) -> Heard:
    found = payloads.heard(agent, given, at_us)
    assert found is not None
    return found


def environment(data: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "STANDFAST_DATA_DIR": str(data), "STANDFAST_HOOK_DEBUG": "1", **more}


PATIENT = (
    "import sys; from standfast.cli import hook; hook.WAIT_S = hook.DEADLINE_S = hook.DRAINED_MAX_S = 50.0\n"
    "hook.main(sys.argv[1:])"
)
"""The hook with limits that a busy machine does not reach: for tests of what it does, not of how long it takes."""


def enter(
    agent: str,
    given: bytes | dict[str, Any],
    data: Path,
    *,
    cwd: Path | None = None,
    program: tuple[str, ...] = ("-m", "standfast", "hook"),
    **more: str,
) -> subprocess.CompletedProcess[bytes]:
    """Run the hook as an agent does: in a new process, with the payload on stdin."""
    text = given if isinstance(given, bytes) else json.dumps(given).encode()
    return subprocess.run(
        [sys.executable, *program, agent],
        input=text,
        capture_output=True,
        env=environment(data, **more),
        cwd=cwd,
        timeout=60,
    )
