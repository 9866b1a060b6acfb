"""`standfast credit`: grant, spend and refund credits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast.cli import values
from standfast.cli.answers import One
from standfast.cli.frame import noun

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.ledger.credits import CreditEntry

credit = noun(
    "credit",
    "Grant, spend and refund credits, once per key.",
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


credit.generate(
    "balance",
    "balances",
    then="credit list {account}",
    empty=lambda asked: f"{asked['account']} has nothing" if "account" in asked else "no account has an entry",
    examples=("standfast credit balance ada", "standfast credit balance --at 'tue 03:00' --json"),
)
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
