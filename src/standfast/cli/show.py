"""`standfast show ID`: show any row by its id, the end of its id, or its key."""

from __future__ import annotations

import click

from standfast import hints
from standfast.cli.frame import argument, command
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.errors import InvalidInput, NotFound

SCREENS = {
    "apr": "approval show",
    "art": "artifact show",
    "dec": "decision show",
    "eff": "effect show",
    "knw": "knowledge show",
    "lop": "loop show",
    "mal": "mail show",
    "run": "loop output",
    "ses": "session show",
    "tsk": "task show",
    "whk": "webhook show",
}
"""The command that shows a row, by the prefix of its id. For other kinds, its events are shown."""


@command("show", examples=("standfast show 9k2m4x", "standfast show fix-42"))
@argument("id", required=False)
@click.pass_context
def show(ctx: click.Context, out: Out, id: str | None) -> None:
    """Show any row by its ID, the last six characters of its ID, or its key. Without ID, run status."""
    if id is None:
        _run(ctx, ["status"])
        return
    found = _found(id)
    if len(found) > 1:
        lines = "\n".join(hints.command(*_screen(one)) for one in found)
        raise InvalidInput(f"{id!r} names {len(found)} things", lines, code="ambiguous")
    _run(ctx, _screen(found[0]))


def _found(id: str) -> list[str]:
    from standfast.views.subjects import Subjects

    with opened(create=False) as sf:
        found = Subjects(sf._store).find(id)
    if not found:
        raise NotFound(f"nothing here has the id or key {id!r}", hints.command("search", id))
    return found


def _screen(id: str) -> list[str]:
    if (screen := SCREENS.get(id[:3])) is not None:
        return [*screen.split(), id]
    return ["timeline", "--all", "--since", "30d", "--subject", id]


def _run(ctx: click.Context, words: list[str]) -> None:
    """Run another command instead of this one."""
    root = ctx.find_root()
    parent: click.Context = root
    chosen: click.Command = root.command
    while isinstance(chosen, click.Group):
        name, found, words = chosen.resolve_command(parent, words)
        assert found is not None
        chosen = found
        if isinstance(chosen, click.Group):
            parent = click.Context(chosen, info_name=name, parent=parent)
    with chosen.make_context(chosen.name, words, parent=parent) as inner:
        chosen.invoke(inner)
