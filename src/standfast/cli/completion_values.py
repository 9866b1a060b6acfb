"""Shell completion of ids, keys and names that the store has, the newest first.

It completes an argument that names a row of its noun (`task done ID`), and the options `--session`, `--task` and
`--agent`. If the store is missing, busy or broken, it offers nothing, because completion must not print an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from standfast import serial
from standfast.cli.open_store import opened
from standfast.hints import word
from standfast.ids import short

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

LISTED_MAX = 200
HELP_MAX = 60
NOUNS = {
    "session": "sessions",
    "task": "tasks",
    "loop": "loops",
    "effect": "effects",
    "approval": "approvals",
    "decision": "decisions",
    "gate": "gates",
    "mail": "mail",
    "state": "state",
    "agent": "agents",
    "artifact": "artifacts",
    "webhook": "webhooks",
}
"""Each noun and its attribute of the handle."""
COMMANDS = {"approve": "approval", "deny": "approval", "mail send": "agent", "loop output": "loop"}
"""Commands whose first argument names a row of another noun, or that have no noun."""
NEW = frozenset(("add", "request", "put", "receive", "record", "test", "pause"))
"""Verbs whose first argument is new text."""


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The possible values: names in the store, or the choices of the type of the parameter."""
    noun = noun_of(ctx, param)
    if noun is None:
        return param.type.shell_complete(ctx, param, incomplete)
    from click.shell_completion import CompletionItem

    try:
        known = list(_known(noun))
    except Exception:  # noqa: BLE001  a shell that completes prints no error
        return []
    found = {name: about for names, about in known for name in names[: 2 if incomplete else 1]}
    return [CompletionItem(name, help=about) for name, about in found.items() if name.startswith(incomplete)]


def noun_of(ctx: click.Context, param: click.Parameter) -> str | None:
    """The noun whose rows `param` names; None if it names no stored row."""
    if not isinstance(param, click.Argument):
        return param.name if param.name in ("session", "task", "agent") else None
    if param is not next(one for one in ctx.command.params if isinstance(one, click.Argument)):
        return None
    words = ctx.command_path.split()[1:]
    noun = COMMANDS.get(" ".join(words[:2])) or COMMANDS.get(words[0], words[0])
    new = words[-1] in NEW and words != ["loop", "pause"]
    return noun if noun in NOUNS and not new else None


def _known(noun: str) -> Iterator[tuple[list[str], str]]:
    """The names of each row (its key, then the end of its id) and its description."""
    with opened(create=False) as sf:
        for one in getattr(sf, NOUNS[noun]).list(limit=LISTED_MAX):
            name = _name(one)
            names = [name] if name and word(name) == name else []  # leave out names that need quotes
            names += [short(one.id)] if getattr(one, "id", None) else []
            yield names, _about(one)


def _name(one: Any) -> str | None:
    """The key or name of a row. Tasks, approvals, mail, and effects without a key have only an id."""
    from standfast.ledger.effects.identity import DERIVED

    found = str(getattr(one, "key", None) or getattr(one, "name", None) or "")
    return found if 0 < len(found) <= HELP_MAX and not found.startswith(DERIVED) else None


def _about(one: Any) -> str:
    for field in ("title", "command", "shown", "summary", "what", "pattern", "subject", "preview", "state"):
        if text := getattr(one, field, None):
            return serial.clean(text if isinstance(text, str) else " ".join(map(str, text)), HELP_MAX)
    return ""
