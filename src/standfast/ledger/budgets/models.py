"""The models of budgets and holds."""

from __future__ import annotations

from typing import TypeAlias

from standfast.core import leases
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.ledger.budgets import amounts
from standfast.ledger.budgets.amounts import UNITS, Amounts
from standfast.models import Model


class Budget(Model):
    """The limit of one subject, and the part of it that is used."""

    id: str
    scope: str
    name: str
    """The subject: agent:NAME, session:KEY, task:ID, all, or the name of a group."""
    parent: str | None
    """The parent budget. Each amount counts in this budget and in the parent."""
    per: str | None
    """hour, day, week or month, by UTC. None: the limit is never refilled."""
    action: str
    """The action of a hook once an agent has used up the budget: warn or block."""
    limit: Amounts
    held: Amounts
    """The amount reserved by calls that have not ended or are in doubt."""
    spent: Amounts
    """The amount used in this hour, day, week or month."""
    left: Amounts
    """limit - spent - held; below 0 if more was used than reserved. None: this unit is not limited."""
    agent: str
    created_us: int
    updated_us: int
    removed_us: int | None
    receipt: Receipt | None = None

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left of a unit that is limited."""
        return any(left <= 0 for left in self.left.known.values())


class Hold(Model):
    """The reservation of one call: the amounts that it may use at most, reserved before the call."""

    id: str
    scope: str
    subject: str
    budgets: tuple[str, ...]
    """The ids of the budgets in which the reservation counts."""
    session_id: str | None
    key: str | None
    n: int
    """The number of the call under its key."""
    state: str
    """held, settled or released."""
    in_doubt: bool
    """True if the reservation is open and its holder has exited. The call may have been made and billed."""
    most: Amounts
    spent: Amounts
    holder: str | None
    agent: str | None
    lease_until_us: int | None
    note: str | None
    settled_by: str | None
    created_us: int
    ended_us: int | None
    fresh: bool = False
    """True if this call made the reservation."""
    receipt: Receipt | None = None

    @property
    def standing(self) -> str:
        """The state, or "in doubt"."""
        return "in doubt" if self.in_doubt else self.state

    @property
    def holder_name(self) -> str:
        """The holder for people; empty if the hold is in doubt or has ended."""
        return "" if self.in_doubt or not self.holder else leases.holder_text(self.holder)


class BudgetReport(Model):
    """A budget with the holds that count in it now."""

    budget: Budget
    holds: tuple[Hold, ...]
    """At most 50, the oldest first."""
    in_doubt: Amounts
    """The part of `held` whose holders have exited."""
    parents: tuple[str, ...]
    """The names of the parent budgets, the nearest first."""


BudgetList: TypeAlias = "list[Budget]"
HoldList: TypeAlias = "list[Hold]"


def budget_of(tx: Tx, row: Row) -> Budget:
    """The budget as it is now: in a new window nothing is spent."""
    limit, held, spent = (amounts.of_row(row, kind) for kind in ("max", "held", "spent"))
    if amounts.window_us(row["per"], tx.now_us()) > row["window_us"]:
        spent = Amounts(0, 0, 0, 0)
    return Budget.from_row(row, limit=limit, held=held, spent=spent, left=left(limit, held, spent))


def left(limit: Amounts, held: Amounts, spent: Amounts) -> Amounts:
    used = {unit: (getattr(held, unit) or 0) + (getattr(spent, unit) or 0) for unit in UNITS}
    return Amounts(**{unit: most - used[unit] for unit, most in limit.known.items()})


def hold_of(tx: Tx, row: Row) -> Hold:
    doubtful = row["state"] == "held" and not leases.judge(tx, row).live
    return Hold.from_row(
        row,
        budgets=tuple(row["budgets"].split()),
        most=amounts.of_row(row, "most"),
        spent=amounts.of_row(row, "spent"),
        in_doubt=doubtful,
    )
