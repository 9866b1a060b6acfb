"""Ask a person before a destructive command: on a terminal, or by the hash of the plan (`--confirm HASH`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from standfast import hints
from standfast.cli import exits
from standfast.cli.output import Out
from standfast.cli.terminal import terminal_of_a_person
from standfast.errors import ApprovalRequired, Conflict

CONFIRM = {"metavar": "HASH", "help": "Confirm the plan with this hash where there is no terminal to ask on."}
"""The attributes of the option `--confirm`."""


def require_consent(
    out: Out, words: Sequence[str], question: str, plan: Mapping[str, Any], lines: Sequence[str], confirm: str | None
) -> None:
    """Go on if `confirm` is the hash of the plan, or if the person types yes; end the command otherwise.

    `words` are the command, `plan` is its JSON with its `hash`, and `lines` show the plan to the person. Raises
    Conflict if the plan has another hash by now, and ApprovalRequired if there is no terminal.
    """
    if confirm is not None:
        if confirm != plan["hash"]:
            raise Conflict(f"the plan is {plan['hash']} now, not {confirm}: the data changed", hints.command(*words))
    elif not _agreed(out, words, question, [*lines, f"plan {plan['hash']}"], plan):
        out.say("nothing was changed")
        raise click.exceptions.Exit(exits.NEEDS_A_PERSON)


def _agreed(out: Out, words: Sequence[str], question: str, lines: Sequence[str], plan: Mapping[str, Any]) -> bool:
    try:
        with terminal_of_a_person(" ".join(("standfast", *words))) as terminal:
            for line in lines:
                terminal.write(line + "\n")
            return terminal.ask(f"\n{question}").lower() == "yes"
    except ApprovalRequired:
        out.record(plan, lines)
        raise ApprovalRequired(
            f"standfast {' '.join(words)} asks a person, and there is no terminal here",
            f"a person confirms this plan: {hints.command(*words, '--confirm', plan['hash'])}",
            code="confirm_required",
        ) from None
