"""Usage: tokens and cost as importers and programs recorded them, summed by session, agent, model, day or repository.

A cost is reported by the transcript or the caller. Where neither reports one, the list price of the model is beside it,
under its own name.
"""

from __future__ import annotations

from standfast.clock import Time
from standfast.core import keys, repositories
from standfast.core.checks import NAME_MAX, one_of, page_size, past_us
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query
from standfast.ledger.budgets.amounts import Usd
from standfast.models import Model
from standfast.record.model_calls import UsageRecord, priced, record_usage, usage_of

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
    "list_price_microusd",
)
_QUARTER_S = 900
"""Rows are first summed by quarter of an hour, because in every time zone a day begins at such a quarter."""


class UsageTotal(Model):
    """The usage of one session, agent, model, day or repository."""

    name: str
    """The key, name, date (local time) or repository of the group. Empty if the transcript does not have it."""
    responses: int
    """Responses of an LLM that were counted."""
    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_microusd: int | None
    """In millionths of a US dollar; None if no transcript has a cost."""
    list_price_microusd: int | None = None
    """The list price of the calls whose cost is not known; None if no price is known."""

    @property
    def cost(self) -> str:
        return _dollars(self.cost_microusd)

    @property
    def list_price(self) -> str:
        return _dollars(self.list_price_microusd)


def _dollars(microusd: int | None) -> str:
    return "" if microusd is None else f"${microusd / 1_000_000:,.2f}"


UsageList = list[UsageTotal]


class Usage(Resource):
    """Tokens and cost: sum and record."""

    __slots__ = ()

    def record(
        self,
        session: str,
        model: str,
        *,
        input_tokens: int,
        output_tokens: int,
        cached_input_tokens: int = 0,
        usd: Usd | None = None,
        key: str | None = None,
        hold: str | None = None,
    ) -> UsageRecord:
        """Record the tokens of one call of MODEL in SESSION, and count them in its budgets.

        - `session`: its key or id.
        - `model`: the name of the model.
        - `input_tokens`: the number of tokens that the call read, including cached tokens.
        - `output_tokens`: the number of tokens that the model wrote.
        - `cached_input_tokens`: the number of input tokens that came from a cache.
        - `usd`: the cost in US dollars; without it, the list price of the model if one is known.
        - `key`: record it once per key; a repeated call returns the first record.
        - `hold`: settle this hold with the usage.

        Raises NotFound, KeyConflict if the key has other counts, and as `budgets.settle` for the hold.
        """
        counts = {"input_tokens": input_tokens, "output_tokens": output_tokens}
        cost = {} if usd is None else {"cost_usd": usd}
        given = usage_of({**counts, "cached_input_tokens": cached_input_tokens, **cost})
        name = keys.checked(model, "model", limit=NAME_MAX)
        own_key = None if key is None else keys.checked(key, "key")
        used, price = priced(name, given)
        return self._write(lambda tx: record_usage(tx, self.scope, session, name, used, price, own_key, hold))

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
        - `since`: only sum usage since this time: 7d, "mon 09:00", 2026-11-20.

        Days are in order, the newest first. Of the others the one with the most tokens is first.
        """
        one_of(by, BY, "by")
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
