"""`standfast usage`: tokens and cost by session, agent, model, day or repository; `usage record` adds a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast import hints
from standfast.cli.answers import Many, One
from standfast.cli.frame import Noun
from standfast.cli.render import Column

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.model_calls import UsageRecord
    from standfast.views.usage import UsageTotal

BY = ("session", "agent", "model", "day", "repository")


class _Usage(Noun):
    """`standfast usage` with options and without a verb runs `usage list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and not {"-h", "--help"} & set(args)):
            args = ["list", *args]
        return super().parse_args(ctx, args)


usage = _Usage("usage", "Sum or record tokens and cost of LLM calls.", default="list", of="standfast.views.usage:Usage")


def _columns(asked: dict[str, Any]) -> list[Column]:
    names = "responses", "input_tokens", "cached_input_tokens", "output_tokens"
    counts = (Column(name, name.removesuffix("_tokens")) for name in names)
    return [Column("name", asked.get("by", "session")), *counts, Column("cost"), Column("list_price", "list price")]


def _row(total: UsageTotal) -> dict[str, Any]:
    return total.as_dict() | {"cost": total.cost, "list_price": total.list_price}


def _listed(_: Standfast, found: Many) -> Many:
    asked = click.get_current_context().params
    choice = asked["scope_choice"]
    other = "day" if asked["by"] == "model" else "model"
    words = hints.command("usage", "--by", other, *[f"--{choice}"] * bool(choice))
    empty = "no usage was recorded" + ("" if choice == "all" else " here; everywhere: standfast usage --all")
    then = words.removeprefix("standfast ") if found.models else ""
    return found._replace(plain=_row, row=_row, limit=0, then=then, empty=empty)


usage.generate(
    "list",
    answer=_listed,
    columns=_columns,
    options={"by": {"type": click.Choice(BY)}},
    examples=("standfast usage --by day --since 7d", "standfast usage --by model --all --json"),
)


def _recorded(_: Standfast, made: UsageRecord) -> One:
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
