"""Usage: tokens and cost as the importers found them, summed by session, agent, model, day or repository. Read only.

Nothing is estimated: a cost is there only where the agent's own transcript has one.
"""

from __future__ import annotations

from standfast.clock import Time
from standfast.core import repositories
from standfast.core.checks import page_size, past_us
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query
from standfast.errors import InvalidInput
from standfast.models import Model

SQL = load(__name__)

BY = ("session", "agent", "model", "day", "repository")
_COUNTS = (
    "responses",
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost_microusd",
)
_QUARTER_S = 900
"""Rows are summed by quarter of an hour first: every time zone's day begins at one."""


class UsageTotal(Model):
    """The usage of one session, agent, model, day or repository."""

    name: str
    """Its key, name, date (local time) or repository; empty if the transcript does not say."""
    responses: int
    """Responses of an LLM that were counted."""
    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_microusd: int | None
    """In millionths of a US dollar; None if no transcript has a cost."""

    @property
    def cost(self) -> str:
        return "" if self.cost_microusd is None else f"${self.cost_microusd / 1_000_000:,.2f}"


UsageList = list[UsageTotal]


class Usage(Resource):
    """Tokens and imported cost."""

    __slots__ = ()

    @query
    def list(
        self,
        tx: Tx,
        *,
        by: str = "session",
        since: Time | None = None,
        everywhere: bool = False,
        limit: int = 50,
    ) -> UsageList:
        """Sum tokens and imported cost by session, agent, model, day or repository.

        - `by`: session, agent, model, day or repository.
        - `since`: only what was used since then: 7d, "mon 09:00", 2026-11-20.

        Days are in order, the newest first. Of the others the one with the most tokens is first.
        """
        if by not in BY:
            raise InvalidInput(f"usage by {by[:40]!r} is unknown", f"one of {', '.join(BY)}")
        rows = tx.all(
            SQL.totals,
            by=by,
            since_us=past_us(since, tx.now_us(), "since") or 0,
            scope=self.scope,
            everywhere=int(everywhere),
            **repositories.filtered(tx, everywhere=everywhere),
        )
        found = [UsageTotal(**row) for row in (_by_day(rows) if by == "day" else rows)]
        order = (lambda one: one.name) if by == "day" else (lambda one: one.input_tokens + one.output_tokens)
        return sorted(found, key=order, reverse=True)[: page_size(limit)]


def _by_day(rows: list[Row]) -> list[Row]:
    """The sums of quarters of an hour as sums of local days."""
    from time import localtime, strftime

    days: dict[str, Row] = {}
    for row in rows:
        name = strftime("%Y-%m-%d", localtime(int(row["name"]) * _QUARTER_S))
        day = days.setdefault(name, {"name": name, **dict.fromkeys(_COUNTS)})
        for count in _COUNTS:
            if row[count] is not None:
                day[count] = (day[count] or 0) + row[count]
    return list(days.values())
