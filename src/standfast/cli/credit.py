"""`standfast credit`: a ledger of credits, one entry per key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli import values
from standfast.cli.answers import Many, One
from standfast.cli.frame import argument, noun, option

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.ledger.credits import CreditEntry

credit = noun(
    "credit",
    "Credits: granted, spent and refunded, once per key.",
    default="list",
    of="standfast.ledger.credits:Credits",
)


def _entered(sf: Standfast, entry: CreditEntry) -> One:
    now = sf.credits.balance(entry.account, unit=entry.unit)
    return One(
        entry,
        [f"{entry.account} has {now.balance} {now.unit}"],
        then="credit list {account}",
        say="" if entry.fresh else f"{entry.key} was entered at {values.moment(entry.created_us)}: nothing changed",
        extra={"balance": now.balance},
    )


credit.generate(
    "add",
    "grant",
    answer=_entered,
    creates=True,
    examples=(
        "standfast credit add ada 1000 --key monthly:invoice_2026_11",
        "standfast credit add ada 500 --unit tokens --key topup:payment_77 --reason 'pack of 500'",
    ),
)
credit.generate(
    "spend",
    answer=_entered,
    creates=True,
    examples=(
        "standfast credit spend ada 20 --key run:fix-42 --reason 'review of PR 7'",
        "standfast credit spend ada 300 --key refund:re_1 --below-zero",
    ),
)
credit.generate(
    "refund",
    answer=_entered,
    options={"of": {"metavar": "KEY"}},
    examples=("standfast credit refund run:fix-42", "standfast credit refund topup:payment_77 --amount 200"),
)


@credit.verb(
    "balance",
    examples=("standfast credit balance ada", "standfast credit balance --at 'tue 03:00' --json"),
)
@argument("account", required=False)
@option("--unit", help="Only this unit.")
@option("--at", "at_us", type=values.PAST, help='The balance at this time: "tue 03:00".')
@option("--after", type=values.PAIR, help="Start after this cursor, the `next` of the last page.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
def balance(sf: Standfast, account: str | None, unit: str | None, at_us: int | None, limit: int, after: Any) -> Many:
    """Show the balance of ACCOUNT, or of all accounts, by unit."""
    if unit is not None and account is None:
        raise click.UsageError("--unit needs an account: standfast credit balance ACCOUNT --unit UNIT")
    then, empty = "credit list {account}", f"{account} has nothing" if account else "no account has an entry"
    if account is not None and unit is not None:
        return Many([sf.credits.balance(account, unit=unit, at_us=at_us)], then=then)
    found = sf.credits.balances(account=account, at_us=at_us, after=after, limit=limit)
    return Many(found, limit=limit, cursor=lambda last: (last.account, last.unit), then=then, empty=empty)


credit.generate(
    "list",
    examples=("standfast credit list", "standfast credit list ada --unit tokens --json"),
    then="credit balance {account}",
    empty="no credits were granted or spent here",
)
credit.generate(
    "show",
    "get",
    options={"which": {"metavar": "KEY|ID"}},
    examples=("standfast credit show topup:payment_77", "standfast credit show run:fix-42 --json"),
)
