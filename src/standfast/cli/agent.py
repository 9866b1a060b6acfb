"""`standfast agent`: list, name and describe agents."""

from __future__ import annotations

from typing import Any

import click

from standfast.cli import values
from standfast.cli.frame import noun

STATUSES = click.Choice(("idle", "active", "blocked", "error"))
FIELDS: dict[str, Any] = {"type": values.FIELD, "multiple": True}

agent = noun(
    "agent",
    "List, name and describe agents. An agent needs no registration.",
    default="list",
    of="standfast.record.agents:Agents",
)
agent.generate(
    "list",
    examples=("standfast agent list", "standfast agent list --status active --config 'model=claude-*' --json"),
    options={"status": {"type": STATUSES}},
    then="agent show {name}",
    empty="no agent matches",
)
agent.generate("show", "get", examples=("standfast agent show reviewer", "standfast agent show --json"))
agent.generate(
    "name",
    creates=True,
    examples=("standfast agent name reviewer", "standfast agent name reviewer --agent claude-code:0199a3"),
    text="mail to {name} reaches this session",
    then="mail send {name} TEXT",
)
agent.generate(
    "set",
    creates=True,
    examples=(
        "standfast agent set --status blocked --why 'waiting for credentials'",
        "standfast agent set reviewer --kind codex --config model=gpt-5 --config temperature=0.2",
    ),
    options={"status": {"type": STATUSES}, "config": FIELDS, "metadata": FIELDS},
    text="{name} is {status_shown}",
    then="agent show {name}",
)
