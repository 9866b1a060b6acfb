"""Shell completion of ids, keys and names: what the store has now, the newest first.

An argument that names a thing of its noun (`task done ID`) and the options `--session`, `--task` and `--agent` offer
the names in the store. A store that is missing, busy or broken offers nothing: a shell that completes prints no error.
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
"""Each noun and its resource on the handle."""
COMMANDS = {"approve": "approval", "deny": "approval", "mail send": "agent", "loop output": "loop"}
"""Commands whose first argument names a thing of another noun, or that have no noun."""
NEW = frozenset(("add", "request", "put", "receive", "record", "test", "pause"))
"""Verbs of a gate or another noun whose first argument is new text."""


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The possible values: names of the store, or the choices of the parameter's type."""
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
    """The noun whose things `param` names; None if it names nothing that is stored."""
    if not isinstance(param, click.Argument):
        return param.name if param.name in ("session", "task", "agent") else None
    if param is not next(one for one in ctx.command.params if isinstance(one, click.Argument)):
        return None
    words = ctx.command_path.split()[1:]
    noun = COMMANDS.get(" ".join(words[:2])) or COMMANDS.get(words[0], words[0])
    new = words[-1] in NEW and words != ["loop", "pause"]
    return noun if noun in NOUNS and not new else None


def _known(noun: str) -> Iterator[tuple[list[str], str]]:
    """The names of each thing, its key before the end of its id, and what it is about."""
    with opened(create=False) as sf:
        for one in getattr(sf, NOUNS[noun]).list(limit=LISTED_MAX):
            name = _name(one)
            names = [name] if name and word(name) == name else []  # not a name that the shell would have to quote
            names += [short(one.id)] if getattr(one, "id", None) else []
            yield names, _about(one)


def _name(one: Any) -> str | None:
    """What people call it: a key or a name. Tasks, approvals, mail and effects without a key have only an id."""
    from standfast.ledger.effects.identity import DERIVED

    found = str(getattr(one, "key", None) or getattr(one, "name", None) or "")
    return found if 0 < len(found) <= HELP_MAX and not found.startswith(DERIVED) else None


def _about(one: Any) -> str:
    for field in ("title", "command", "shown", "summary", "what", "pattern", "subject", "preview", "state"):
        if text := getattr(one, field, None):
            return serial.clean(text if isinstance(text, str) else " ".join(map(str, text)), HELP_MAX)
    return ""
