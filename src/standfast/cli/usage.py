"""`standfast usage`: tokens and cost by session, agent, model, day or repository; `usage record` adds some."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from standfast import hints
from standfast.cli.answers import One
from standfast.cli.frame import Noun, option, scope_options
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.config import load

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.model_calls import UsageRecord

BY = ("session", "agent", "model", "day", "repository")


class _Usage(Noun):
    """`standfast usage` with options and no verb lists the sums."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and not {"-h", "--help"} & set(args)):
            args = ["list", *args]
        return super().parse_args(ctx, args)


usage = _Usage("usage", "Tokens and cost of calls of models.", default="list", of="standfast.views.usage:Usage")


@usage.verb("list", examples=("standfast usage --by day --since 7d", "standfast usage --by model --all --json"))
@option("--by", type=click.Choice(BY), default="session", show_default=True, help="What to sum by.")
@option("--since", metavar="TIME", help='Only since then: "7d", "mon 09:00", "2026-11-10".')
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="At most this many rows.")
@scope_options
def list_(out: Out, by: str, since: str | None, limit: int, scope_choice: str | None) -> None:
    """Sum tokens and cost by session, agent, model, day or repository. A list price is no bill."""
    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        found = sf.usage.list(by=by, since=since, everywhere=scope_choice == "all", limit=limit)
    other = hints.command(
        "usage", "--by", "day" if by == "model" else "model", *[f"--{scope_choice}"] * bool(scope_choice)
    )
    columns = ("responses", "input_tokens", "cached_input_tokens", "output_tokens")
    out.rows(
        [one.as_dict() | {"cost": one.cost, "list_price": one.list_price} for one in found],
        [
            Column("name", by),
            *(Column(name, name.removesuffix("_tokens")) for name in columns),
            Column("cost"),
            Column("list_price", "list price"),
        ],
        empty="no usage was recorded" + ("" if scope_choice == "all" else " here; everywhere: standfast usage --all"),
        then=other if found else "standfast import claude-code",
    )


def _recorded(sf: Standfast, made: UsageRecord) -> One:
    cost = "" if made.cost_microusd is None else f", ${made.cost_microusd / 1_000_000:,.6f}"
    label = f" ({made.price})" if made.price else ""
    text = f"{made.input_tokens:,} tokens in, {made.output_tokens:,} out{cost}{label}"
    return One(made, [f"{made.model}: {text}"], then="usage")


usage.generate(
    "record",
    answer=_recorded,
    options={"session": {"metavar": "SESSION"}, "model": {"metavar": "MODEL"}},
    examples=(
        "standfast usage record fix-42 m-1 --input-tokens 800 --output-tokens 12 --usd 0.01",
        "standfast usage record fix-42 m-1 --input-tokens 800 --output-tokens 12 --key call:7 --hold 9k2m4x",
    ),
)
