"""CPU time of a start: the interpreter alone, an import, and the first commands."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import standfast
from standfast_prove.bench.measure import Plan, Reach, Table, at_most, interleaved
from standfast_prove.bench.postgres import server
from standfast_prove.faults import Unavailable
from standfast_prove.postgres import fresh_database

COMMAND = str(Path(sysconfig.get_path("scripts")) / "standfast")
OPEN = "import standfast; standfast.open().close()"
TASKS = 10
"""The number of tasks in the store whose tasks are listed."""


def _payload(event: str, **more: object) -> bytes:
    return json.dumps({"session_id": "s1", "cwd": "/", "hook_event_name": event, **more}).encode()


_LS = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "t1"}
HOOKS = {
    "standfast hook, a start and its brief": _payload("SessionStart", source="startup"),
    "standfast hook, a prompt": _payload("UserPromptSubmit", prompt="list the files"),
    "standfast hook, a tool call": _payload("PreToolUse", **_LS),
    "standfast hook, its answer": _payload("PostToolUse", tool_response={"stdout": "x" * 2000}, **_LS),
}


REPORTS = tuple(name for name, given in HOOKS.items() if b"ToolUse" in given)
"""Hooks that only report: they go to the spool."""
Starts = dict[str, tuple[list[str], Reach | None]]


def _hooks(others: Reach | None) -> Starts:
    return {name: ([COMMAND, "hook", "claude-code"], at_most(0.035) if name in REPORTS else others) for name in HOOKS}


def start(plan: Plan) -> list[Table]:
    """User and system time of whole processes, taken in turns."""
    commands: Starts = {
        "import standfast": ([sys.executable, "-c", "import standfast"], at_most(0.06)),
        "import standfast.handle": ([sys.executable, "-c", "import standfast.handle"], at_most(0.06)),
        "open and close": ([sys.executable, "-c", OPEN], None),
        "standfast --version": ([COMMAND, "--version"], None),
        "standfast where": ([COMMAND, "where"], at_most(0.1)),
        "standfast task list": ([COMMAND, "task", "list"], at_most(0.1)),
        **_hooks(at_most(0.1)),
    }
    return with_postgres(plan, _measured(plan, commands, _environment(plan), "Starting, CPU"))


def with_postgres(plan: Plan, table: Table) -> list[Table]:
    """The same with a store on a server, or the reason why there is none."""
    try:
        with server(plan.directory) as url, fresh_database(url) as place:
            return [table, _on_postgres(plan, place)]
    except Unavailable as missing:
        table.note += f" On PostgreSQL NOT MEASURED: {missing}."
        return [table]


def _on_postgres(plan: Plan, url: str) -> Table:
    commands: Starts = {
        "open and close": ([sys.executable, "-c", OPEN], None),
        "standfast task list": ([COMMAND, "task", "list"], None),
        **_hooks(None),
    }
    table = _measured(plan, commands, {**_environment(plan), "STANDFAST_DB_URL": url}, "Starting on PostgreSQL, CPU")
    table.note += " The server's own is not in it. All but hooks that only report import psycopg."
    return table


def _measured(plan: Plan, commands: Starts, environment: dict[str, str], title: str) -> Table:
    for n in range(TASKS):
        _cpu([COMMAND, "task", "add", f"something to be listed, {n}"], environment, b"")()
    bare = "python -c pass"
    contestants = {bare: _cpu([sys.executable, "-c", "pass"], environment, b"")}
    for name, (command, _) in commands.items():
        contestants[name] = _cpu(command, environment, HOOKS.get(name, b""))
    interleaved(1, contestants)  # compiles the modules and creates the store
    taken = interleaved(plan.starts, contestants, patience_s=plan.patience_s)
    table = Table(title, "User and system time of the whole process; the figures are over the bare interpreter.")
    table.add(bare, taken[bare], "s")
    for name, (_, reach) in commands.items():
        table.add(name, taken[name], "s")
        over = [ours - none for ours, none in zip(taken[name], taken[bare], strict=True)]
        table.add(f"{name}, over it", over, "s", reach)
    return table


def _environment(plan: Plan) -> dict[str, str]:
    """The environment after an installation: modules are compiled once, without special settings of Python."""
    place = plan.fresh("start")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = {**inherited, "STANDFAST_DATA_DIR": str(place)}
    if not os.access(standfast.__path__[0], os.W_OK):
        environment["PYTHONPYCACHEPREFIX"] = str(place / "compiled")
    return environment


def _cpu(command: list[str], environment: dict[str, str], given: bytes) -> Callable[[], float]:
    def run() -> float:
        reading, writing = os.pipe()
        os.write(writing, given)
        os.close(writing)
        quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
        pid = os.posix_spawn(command[0], command, environment, file_actions=[*quiet, (os.POSIX_SPAWN_DUP2, reading, 0)])
        os.close(reading)
        _, status, usage = os.wait4(pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            raise RuntimeError(f"{' '.join(command)} exits with {os.waitstatus_to_exitcode(status)}")
        return usage.ru_utime + usage.ru_stime

    return run
