"""`standfast help`, `standfast --version`, and the help of `standfast hook`, which runs before click is loaded."""

from __future__ import annotations

import sys

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
    """Show the main commands, `all` commands, the `exit-codes`, or the help of one command."""
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
    """The help of the command with this name."""
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


@command("hook", examples=("standfast install claude-code", "standfast hook codex < payload.json"))
@argument("agent")
def hook(out: Out, agent: str) -> None:
    """Record what an AGENT's hook reports on stdin. Always exits 0; `standfast install` sets it up.

    It prints the brief at the start of a session, lines about mail and budgets, and a refusal if a gate matches.
    """
    from standfast.cli.hook import main

    main([agent])


def print_version(out: Out) -> None:
    """Print the versions of this package and of the libraries that hold the data."""
    found = versions()
    rest = ", ".join(f"{name} {version or 'not installed'}" for name, version in found.items() if name != "standfast")
    out.record(found, [f"standfast {found['standfast']} ({rest})"])


def versions() -> dict[str, str | None]:
    """Name → version; None for a package that is not installed. SQLite's version is that of the linked library."""
    from standfast import __version__
    from standfast.db.versions import library_versions

    python = ".".join(str(part) for part in sys.version_info[:3])
    return {"standfast": __version__, "python": python, **library_versions()}
