"""The subject of an effect or an approval in one line: the command, or the tool with its arguments.

Every screen, message and brief takes this line from here. Summaries of the journal and the recovery report use
`journalled`, which reads no payload: an auditor may see both.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast import serial
from standfast.core import authors
from standfast.db.contract import Tx
from standfast.db.sql import load
from standfast.ledger.effects import identity

SQL = load(__name__)

COMMANDS = ("argv", "command", "cmd", "script")
"""Fields of an intent that hold a command."""


class Action(NamedTuple):
    """The subject of an action: a command, or a call of a tool."""

    tool: str
    text: str
    is_command: bool

    @property
    def wanted(self) -> str:
        """`run` or `call`, with the text in backticks: "coder wants to …"."""
        return f"{'run' if self.is_command else 'call'} `{self.text}`"

    @property
    def quoted(self) -> str:
        """The text for an LLM: everything that another program wrote is in quotes."""
        if self.is_command:
            return authors.quoted(self.text)
        arguments = self.text.removeprefix(self.tool).strip()
        return " ".join([authors.name(self.tool), *([authors.quoted(arguments)] if arguments else [])])


def action(tool: str, intent: serial.Json, by: object = None) -> Action:
    """The action of an intent. With `by`, it names only these fields."""
    command = command_of(intent)
    if command is not None:
        return Action(tool, serial.clean(command, identity.SHOWN_MAX), True)
    if isinstance(by, list) and isinstance(intent, dict):
        intent = {name: intent[name] for name in by if name in intent}
    return Action(tool, identity.describe(tool, intent), False)


def journalled(tx: Tx, id: str) -> Action | None:
    """The action of an effect or approval by its journal row: the tool and the fields that identify the effect."""
    if id.startswith("apr_"):
        asked = tx.maybe(SQL.effect_of, id=id)
        id = asked["effect_id"] if asked is not None else ""
    row = tx.maybe(SQL.planned, id=id)
    if row is None:
        return None
    tool, text = row["tool"], row["summary"] or row["tool"]
    for start in (f"{tool} {name}=" for name in COMMANDS):
        if text.startswith(start):
            return Action(tool, text.removeprefix(start), True)
    return Action(tool, text.removeprefix("once "), True) if tool == "once" else Action(tool, text, False)


def command_of(intent: serial.Json) -> str | None:
    """The command line in an intent; None for another kind of call."""
    found = intent.get(next((n for n in COMMANDS if n in intent), "")) if isinstance(intent, dict) else None
    if isinstance(found, list) and found and all(isinstance(word, str) for word in found):
        import shlex

        return shlex.join(found)
    return found if isinstance(found, str) and found.strip() else None
