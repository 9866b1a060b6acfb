"""The areas of the benchmark, and the sizes of a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from standfast_prove.bench.measure import Plan, Table

_HERE = "standfast_prove.bench"
OURS = {
    "alone": f"{_HERE}.writing",
    "threads": f"{_HERE}.writing",
    "processes": f"{_HERE}.writing",
    "wakeup": f"{_HERE}.wakeup",
    "opening": f"{_HERE}.opening",
    "growth": f"{_HERE}.growth",
    "history": f"{_HERE}.growth",
    "history_postgres": f"{_HERE}.growth",
    "budgets": f"{_HERE}.budgets",
    "budgets_postgres": f"{_HERE}.budgets",
    "copies": f"{_HERE}.copies",
    "knowledge": f"{_HERE}.knowledge",
    "knowledge_postgres": f"{_HERE}.knowledge",
    "moves": f"{_HERE}.moves",
    "postgres": f"{_HERE}.postgres",
    "start": f"{_HERE}.start",
}
"""Areas that need only standfast, in their order. The module has a function of the area's name."""

PEERS = {
    "tasks": f"{_HERE}.aio",
    "steps": f"{_HERE}.steps",
    "steps_postgres": f"{_HERE}.steps",
    "resume": f"{_HERE}.steps",
    "messages": f"{_HERE}.records",
    "upsert": f"{_HERE}.records",
    "claims": f"{_HERE}.tasks",
    "claims_postgres": f"{_HERE}.tasks",
    "loops": f"{_HERE}.loops",
    "mail": f"{_HERE}.mail",
    "mail_postgres": f"{_HERE}.mail",
    "events": f"{_HERE}.events",
    "events_postgres": f"{_HERE}.events",
    "search": f"{_HERE}.search",
    "imports": f"{_HERE}.imports",
    "langgraph": f"{_HERE}.threads",
    "langgraph_postgres": f"{_HERE}.threads",
    "openai_sessions": f"{_HERE}.sessions_openai",
    "openai_sessions_postgres": f"{_HERE}.sessions_openai",
}
"""Areas of one feature each. Most compare standfast with packages of other projects, which are installed from PyPI on
request.
"""

AREAS = OURS | PEERS

SHORT = ("alone", "threads", "processes", "wakeup", "opening", "postgres", "start")
"""The default areas. The other areas make stores of millions of rows."""


def area(name: str) -> Callable[[Plan], list[Table]]:
    function: Callable[[Plan], list[Table]] = getattr(import_module(AREAS[name]), name)
    return function


def quick(directory: Path) -> Plan:
    """All areas in a few minutes. The results are too noisy to judge by."""
    return Plan(directory=directory, rounds=5, window_s=0.25, starts=15, openings=3, rows=200_000)


def leave_the_users_store_alone(directory: Path) -> None:
    for name in [name for name in os.environ if name.startswith("STANDFAST_") and "TEST" not in name]:
        del os.environ[name]
    os.environ["STANDFAST_DATA_DIR"] = str(directory / "data")
    os.environ["STANDFAST_REMEMBER"] = "0"
    os.environ["XDG_STATE_HOME"] = str(directory / "state")  # a move and a copy write to this directory
