"""Asking a person before a destructive command: on a terminal, or by the hash of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from standfast import hints
from standfast.cli.output import Out
from standfast.cli.person_terminal import terminal_of_a_person
from standfast.errors import ApprovalRequired


def agreed(out: Out, command: Sequence[str], question: str, plan: Mapping[str, Any], lines: Sequence[str]) -> bool:
    """Show the plan and ask on the terminal; without one, print the plan and refuse. `plan` has its own `hash`."""
    try:
        with terminal_of_a_person(" ".join(("standfast", *command))) as terminal:
            for line in lines:
                terminal.write(line + "\n")
            return terminal.ask(f"\n{question}").lower() == "yes"
    except ApprovalRequired:
        out.record(plan, lines)
        raise ApprovalRequired(
            f"standfast {' '.join(command)} asks a person, and there is no terminal here",
            f"a person confirms this plan: {hints.command(*command, '--confirm', plan['hash'])}",
            code="confirm_required",
        ) from None
