"""`standfast usage`: tokens and imported cost by session, agent, model, day or repository."""

from __future__ import annotations

import click

from standfast.cli.frame import command, option, scope_options
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.config import load

BY = ("session", "agent", "model", "day", "repository")


@command("usage", examples=("standfast usage --by day --since 7d", "standfast usage --by model --all --json"))
@option("--by", type=click.Choice(BY), default="session", show_default=True, help="What to sum by.")
@option("--since", metavar="TIME", help='Only since then: "7d", "mon 09:00", "2026-11-10".')
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="At most this many rows.")
@scope_options
def usage(out: Out, by: str, since: str | None, limit: int, scope_choice: str | None) -> None:
    """Sum the tokens and the cost that were imported from transcripts. Nothing is estimated."""
    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        found = sf.usage.list(by=by, since=since, everywhere=scope_choice == "all", limit=limit)
    columns = ("responses", "input_tokens", "cached_input_tokens", "output_tokens")
    out.rows(
        [one.as_dict() | {"cost": one.cost} for one in found],
        [Column("name", by), *(Column(name, name.removesuffix("_tokens")) for name in columns), Column("cost")],
        empty="no usage was imported" + ("" if scope_choice == "all" else " here; everywhere: standfast usage --all"),
        then="standfast import claude-code" if not found else "",
    )
