"""`standfast credit`: a ledger of credits, one entry per key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli.frame import argument, noun, option, pair
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.footings import hints

if TYPE_CHECKING:
    from standfast.ledger.credits import Balance, CreditEntry

credit = noun("credit", "Credits: granted, spent and refunded, once per key.", default="list")


def _moment(us: int | None) -> str:
    from time import localtime, strftime

    return strftime("%Y-%m-%d %H:%M", localtime(us // 1_000_000)) if us is not None else ""


COLUMNS = [
    Column("seq"),
    Column("occurred_us", "when", _moment),
    Column("account"),
    Column("amount", show="{:+}".format),
    Column("unit"),
    Column("key"),
    Column("reason"),
]


def entry_options(function: Any) -> Any:
    """What every entry has."""
    for one in (
        option("--at", "moment", help='When it happened: "tue 03:00".  [default: now]'),
        option("--reason", help="What for, in words; not compared."),
        option("--unit", default="credits", show_default=True, help="What is counted: credits, tokens, eur-cent."),
        option("--key", required=True, help="The event it stands for: monthly:invoice_7, topup:payment_9."),
    ):
        function = one(function)
    return function


@credit.verb(
    "add",
    examples=(
        "standfast credit add ada 1000 --key monthly:invoice_2026_11",
        "standfast credit add ada 500 --unit tokens --key topup:payment_77 --reason 'pack of 500'",
    ),
)
@argument("account")
@argument("amount", type=int)
@entry_options
def add(out: Out, account: str, amount: int, moment: str | None, **given: Any) -> None:
    """Grant AMOUNT to ACCOUNT, once per key: said again, nothing is added."""
    from standfast.cli.store import opened

    with opened() as sf:
        entry = sf.credits.grant(account, amount, occurred_us=_past(moment), **given)
        now = sf.credits.balance(entry.account, unit=entry.unit)
    _print(out, entry, now)


@credit.verb(
    "spend",
    examples=(
        "standfast credit spend ada 20 --key run:fix-42 --reason 'review of PR 7'",
        "standfast credit spend ada 300 --key refund:re_1 --below-zero",
    ),
)
@argument("account")
@argument("amount", type=int)
@entry_options
@option("--below-zero", is_flag=True, help="It has happened: record it whatever the balance.")
def spend(out: Out, account: str, amount: int, moment: str | None, **given: Any) -> None:
    """Take AMOUNT from ACCOUNT, once per key; refused (exit 4) if the balance does not cover it."""
    from standfast.cli.store import opened

    with opened() as sf:
        entry = sf.credits.spend(account, amount, occurred_us=_past(moment), **given)
        now = sf.credits.balance(entry.account, unit=entry.unit)
    _print(out, entry, now)


@credit.verb(
    "refund",
    examples=("standfast credit refund run:fix-42", "standfast credit refund topup:payment_77 --amount 200"),
)
@argument("key")
@option("--amount", type=int, help="Only part of it.")
@option("--reason", help="What for, in words.")
def refund(out: Out, key: str, amount: int | None, reason: str | None) -> None:
    """Undo the entry with KEY, once: what was spent comes back, what was granted is taken back."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        entry = sf.credits.refund(key, amount=amount, reason=reason)
        now = sf.credits.balance(entry.account, unit=entry.unit)
    _print(out, entry, now)


@credit.verb(
    "balance",
    examples=("standfast credit balance ada", "standfast credit balance --at 'tue 03:00' --json"),
)
@argument("account", required=False)
@option("--unit", help="Only of this unit.")
@option("--at", "moment", help='As it was then: "tue 03:00".')
@option("--after", help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
def balance(out: Out, account: str | None, unit: str | None, moment: str | None, after: str | None, limit: int) -> None:
    """Say what ACCOUNT has, by unit; without ACCOUNT, what everybody has."""
    from standfast.cli.store import opened

    if unit is not None and account is None:
        raise click.UsageError("--unit needs an account: standfast credit balance ACCOUNT --unit UNIT")
    at_us = _past(moment)
    with opened(create=False) as sf:
        if account is not None and unit is not None:
            found = [sf.credits.balance(account, unit=unit, at_us=at_us)]
        else:
            found = sf.credits.balances(account=account, at_us=at_us, after=pair(after), limit=limit)
    out.rows(
        [one._asdict() for one in found],
        [
            Column("account"),
            Column("balance"),
            Column("unit"),
            Column("entries"),
            Column("last_us", "last", _moment),
        ],
        next=_next(found[-1]) if len(found) == limit and unit is None else None,
        then=hints.command("credit", "list", found[0].account) if found else "",
        empty=f"{account} has nothing" if account else "nobody has anything",
    )


@credit.verb("list", examples=("standfast credit list", "standfast credit list ada --unit tokens --json"))
@argument("account", required=False)
@option("--unit", help="Only of this unit.")
@option("--after", type=int, help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
def list_(out: Out, account: str | None, unit: str | None, after: int | None, limit: int) -> None:
    """List the entries of ACCOUNT, or all, the newest first."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        found = sf.credits.list(account=account, unit=unit, after=after, limit=limit)
    out.rows(
        [plain(one) for one in found],
        COLUMNS,
        next=str(found[-1].seq) if len(found) == limit else None,
        then=hints.command("credit", "balance", found[0].account) if found else "",
        empty="nothing was granted or spent here",
    )


@credit.verb("show", examples=("standfast credit show topup:payment_77", "standfast credit show run:fix-42 --json"))
@argument("key")
def show(out: Out, key: str) -> None:
    """Show the entry with KEY."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        entry = sf.credits.get(key)
    pairs = [
        ("entry", entry.id),
        ("key", entry.key),
        ("account", entry.account),
        ("amount", f"{entry.amount:+} {entry.unit}"),
        ("reason", entry.reason),
        ("happened", _moment(entry.occurred_us)),
        ("written", f"{_moment(entry.created_us)} by {entry.actor}"),
    ]
    out.record(plain(entry), list(out.pairs([(label, value) for label, value in pairs if value])))


# -- small parts -------------------------------------------------------------------------------------


def plain(entry: CreditEntry) -> dict[str, Any]:
    return {**entry._asdict(), "receipt": entry.receipt.as_json() if entry.receipt else None}


def _print(out: Out, entry: CreditEntry, now: Balance) -> None:
    out.record({**plain(entry), "balance": now.balance}, [f"{entry.account} has {now.balance} {now.unit}"])
    if out.for_people and not entry.fresh:
        out.say(f"standfast: {entry.key} was entered before, at {_moment(entry.created_us)}: nothing changed")
    out.then(hints.command("credit", "list", entry.account))


def _next(last: Balance) -> str:
    import json

    return json.dumps([last.account, last.unit])


def _past(text: str | None) -> int | None:
    if text is None:
        return None
    import time

    from standfast.views import when

    return when.parse(text, time.time_ns() // 1000).us
