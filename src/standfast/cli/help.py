"""`standfast help`: the screen, all of it, the exit codes, or one command's own page."""

from __future__ import annotations

import click

from standfast.cli import exits
from standfast.cli.app import help_screen
from standfast.cli.frame import argument, command
from standfast.cli.output import Out
from standfast.cli.registry import ENTRIES


@command("help", examples=("standfast help all", "standfast help exit-codes"))
@argument("topic", nargs=-1)
@click.pass_context
def help_command(ctx: click.Context, out: Out, topic: tuple[str, ...]) -> None:
    """Show the commands, `all` of them, the `exit-codes`, or one COMMAND's own help."""
    if topic == ("exit-codes",):
        rows = [{"code": code, "meaning": meaning} for code, meaning in exits.MEANINGS.items()]
        out.rows(rows, ["code", "meaning"])
    elif topic in ((), ("all",)):
        if out.for_people:
            out.text(help_screen(everything=bool(topic)).rstrip("\n"))
        else:
            out.rows([{"name": e.name, "group": e.group, "summary": e.summary} for e in ENTRIES], ["name"])
    else:
        out.text(_page(ctx, list(topic)))


def _page(ctx: click.Context, words: list[str]) -> str:
    """The help of the command these words name."""
    found: click.Command = ctx.find_root().command
    parent = ctx.find_root()
    while words:
        if not isinstance(found, click.Group):
            raise click.UsageError(f"{parent.command_path} has no verbs", parent)
        name, inner, words = found.resolve_command(parent, words)
        assert inner is not None
        parent = click.Context(inner, info_name=name, parent=parent)
        found = inner
    return found.get_help(parent)
