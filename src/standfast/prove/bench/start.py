"""What starting costs: CPU of the interpreter alone, of an import, of the first commands."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from standfast.prove.bench.measure import Plan, Reach, Table, at_most, interleaved

OPEN = "import standfast; standfast.open().close()"


def _payload(event: str, **more: object) -> bytes:
    return json.dumps({"session_id": "s1", "cwd": "/", "hook_event_name": event, **more}).encode()


_LS = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "t1"}
HOOKS = {
    "standfast hook, a start and its brief": _payload("SessionStart", source="startup"),
    "standfast hook, a prompt": _payload("UserPromptSubmit", prompt="list the files"),
    "standfast hook, a tool call": _payload("PreToolUse", **_LS),
    "standfast hook, its answer": _payload("PostToolUse", tool_response={"stdout": "x" * 2000}, **_LS),
}


def start(plan: Plan) -> list[Table]:
    """User and system time of whole processes, taken in turns."""
    command = str(Path(sysconfig.get_path("scripts")) / "standfast")
    commands: dict[str, tuple[list[str], Reach | None]] = {
        "python -c pass": ([sys.executable, "-c", "pass"], None),
        "import standfast": ([sys.executable, "-c", "import standfast"], at_most(0.06)),
        "import standfast.handle": ([sys.executable, "-c", "import standfast.handle"], at_most(0.06)),
        "open and close": ([sys.executable, "-c", OPEN], None),
        "standfast --version": ([command, "--version"], None),
        "standfast where": ([command, "where"], at_most(0.1)),
        **{name: ([command, "hook", "claude-code"], at_most(0.1)) for name in HOOKS},
    }
    environment = _environment(plan)
    contestants = {name: _cpu(command, environment, HOOKS.get(name, b"")) for name, (command, _) in commands.items()}
    interleaved(1, contestants)  # compiles the modules and makes the store
    taken = interleaved(plan.starts, contestants, patience_s=plan.patience_s)
    bare = taken["python -c pass"]
    table = Table(
        "Starting, CPU", "User and system time of the whole process; the figures are over the bare interpreter."
    )
    table.add("python -c pass", bare, "s")
    for name, (_, reach) in commands.items():
        if name != "python -c pass":
            table.add(name, taken[name], "s")
            table.add(
                f"{name}, over it", [ours - none for ours, none in zip(taken[name], bare, strict=True)], "s", reach
            )
    return [table]


def _environment(plan: Plan) -> dict[str, str]:
    """As after an installation: modules are compiled once, and no setting of the interpreter's is in the way."""
    place = plan.fresh("start")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**inherited, "STANDFAST_DATA_DIR": str(place), "PYTHONPYCACHEPREFIX": str(place / "compiled")}


def _cpu(command: list[str], environment: dict[str, str], given: bytes) -> Callable[[], float]:
    def run() -> float:
        reading, writing = os.pipe()
        os.write(writing, given)
        os.close(writing)
        quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0), (os.POSIX_SPAWN_DUP2, reading, 0)]
        pid = os.posix_spawn(command[0], command, environment, file_actions=quiet)
        os.close(reading)
        _, status, usage = os.wait4(pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            raise RuntimeError(f"{' '.join(command)} exits with {os.waitstatus_to_exitcode(status)}")
        return usage.ru_utime + usage.ru_stime

    return run
