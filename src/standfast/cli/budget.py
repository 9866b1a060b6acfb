"""`standfast budget`: limit tokens, money, calls and time; reserve before a call, settle after it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from standfast.cli import values
from standfast.cli.answers import Many, One
from standfast.cli.frame import noun
from standfast.cli.render import Column

if TYPE_CHECKING:
    from standfast.cli.output import Out
    from standfast.handle import Standfast
    from standfast.ledger.budgets import Budget, BudgetReport, Hold

budget = noun(
    "budget",
    "Limit tokens, money, calls and time: reserve before a call, settle after it.",
    default="list",
    of="standfast.ledger.budgets:Budgets",
)
_NAME = {"name": {"metavar": "NAME"}}
_HOLD = {"which": {"metavar": "HOLD"}}
BUDGETS = [
    Column("name"),
    Column("per"),
    Column("limit", show=str),
    Column("spent", show=lambda spent: spent.used),
    Column("held", show=lambda held: held.used),
    Column("left", show=str),
    Column("parent", "within"),
    Column("action"),
]
HOLDS = [
    Column("id", show=values.short),
    Column("subject"),
    Column("standing", "state"),
    Column("most", show=lambda most: most.used),
    Column("agent", "by"),
    Column("holder_name", "holder"),
    Column("created_us", "since", show=values.moment),
    Column("key"),
]


def _set(sf: Standfast, made: Budget) -> One:
    per = f" per {made.per}" if made.per else ""
    within = f", within {made.parent}" if made.parent else ""
    return One(made, [f"{made.name} may use {made.limit}{per}{within}"], then="budget show {name}")


budget.generate(
    "set",
    answer=_set,
    creates=True,
    options=_NAME
    | {
        "per": {"type": click.Choice(["hour", "day", "week", "month"])},
        "action": {"type": click.Choice(["warn", "block"])},
    },
    examples=(
        "standfast budget set agent:coder --tokens 1000000 --per day",
        "standfast budget set session:fix-42 --usd 2.50 --within agent:coder",
    ),
)


def _budgets(sf: Standfast, found: Many) -> Many:
    return found._replace(columns=BUDGETS)


budget.generate(
    "list",
    answer=_budgets,
    then="budget show {name}",
    empty="no budget is set; set one: standfast budget set all --usd 20 --per day",
    examples=("standfast budget list", "standfast budget list --json"),
)


def _report(sf: Standfast, found: BudgetReport) -> One:
    return One(found, lambda out: _screen(out, found), then=_next(found))


def _screen(out: Out, found: BudgetReport) -> Iterable[str]:
    own = found.budget
    per = f" per {own.per} (UTC)" if own.per else ""
    yield f"{own.name}: {own.limit}{per}"
    if found.parents:
        yield f"within: {', '.join(found.parents)}"
    yield from out.pairs([("spent", own.spent.used), ("held", own.held.used), ("left", str(own.left))])
    for hold in found.holds:
        holder = "its holder has exited" if hold.in_doubt else hold.holder_name
        yield f"{values.short(hold.id)}  {hold.standing}: {hold.most.used}, by {hold.agent} ({holder})"


def _next(found: BudgetReport) -> str:
    for hold in found.holds:
        if hold.in_doubt:
            return f"budget settle {values.short(hold.id)} --tokens N; or budget release {values.short(hold.id)}"
    return "budget holds {name}".replace("{name}", found.budget.name.replace("{", "{{").replace("}", "}}"))


budget.generate(
    "show",
    "report",
    answer=_report,
    options=_NAME,
    examples=("standfast budget show agent:coder", "standfast budget show all --json"),
)


def _listed(sf: Standfast, found: Many) -> Many:
    return found._replace(columns=HOLDS)


budget.generate(
    "holds",
    answer=_listed,
    options=_NAME,
    empty="there are no holds",
    examples=("standfast budget holds", "standfast budget holds agent:coder --ended --json"),
)
budget.generate(
    "remove",
    options=_NAME,
    text="removed: {name}",
    examples=("standfast budget remove session:fix-42", "standfast budget remove all --json"),
)


def _held(sf: Standfast, hold: Hold) -> One:
    return One(hold, [f"{values.short(hold.id)}: {hold.most.used} held for {hold.subject}"], then="budget settle {id}")


budget.generate(
    "reserve",
    answer=_held,
    options={"calls": "Reserve N calls."},
    examples=(
        "standfast budget reserve agent:coder --tokens 3000 --key call:7",
        "standfast budget reserve team --usd 0.50 --note 'review of PR 7'",
    ),
)


def _settled(sf: Standfast, hold: Hold) -> One:
    return One(hold, [f"{hold.subject}: {hold.spent.used} used of {hold.most.used}"], then="budget list")


budget.generate(
    "settle",
    answer=_settled,
    options=_HOLD,
    examples=("standfast budget settle 9k2m4x --tokens 812", "standfast budget settle call:7 --usd 0.12"),
)
budget.generate(
    "release",
    options=_HOLD,
    text="the amount is returned to {subject}",
    then="budget list",
    examples=("standfast budget release 9k2m4x", "standfast budget release call:7 --note 'never sent'"),
)
budget.generate(
    "doubt",
    "give_up",
    options=_HOLD,
    text="{id} is in doubt",
    then="budget settle {id}",
    examples=("standfast budget doubt 9k2m4x", "standfast budget doubt call:7 --note 'the request timed out'"),
)
