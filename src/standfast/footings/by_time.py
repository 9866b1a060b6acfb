"""Reading the journal by when things happened.

PostgreSQL has an index for it. On SQLite that index would be one page more in every commit, a twentieth of
what a record costs, to say what the rows' own numbers say already: nearly always things are told in the order in
which they happen. So there a row tells whether it was (`late_us` is 0), and `occurred_us + late_us` never falls
from row to row. Every 64th row is in an index by that sum, which is where a stretch of time begins and ends;
what was told out of order (imports, spools, a clock that was set back) is in an index of its own. A question is put
to both, and the answers are merged.
"""

from __future__ import annotations

from operator import itemgetter

from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement, load

SQL = load(__name__)

_PLACE = itemgetter("occurred_us", "seq")


def between(tx: Tx, asked: Statement, *, newest: bool = False, limit: int, **params: object) -> list[Row]:
    """The answer to a statement with {in_time}, which orders by {by_time}, or by {by_time_down} if `newest`."""
    rows = tx.all(asked, limit=limit, **params)
    late = tx.all(asked.late, limit=limit, **params) if tx.dialect == "sqlite" else []
    return sorted(rows + late, key=_PLACE, reverse=newest)[:limit] if late else rows


def last_before(tx: Tx, us: int) -> int | None:
    """When the last thing before a moment happened."""
    found = [us for us in tx.one(SQL.last_before, us=us).values() if us is not None]
    return max(found, default=None)


def first_from(tx: Tx, us: int) -> int | None:
    """When the first thing from a moment on happened."""
    found = [us for us in tx.one(SQL.first_from, us=us).values() if us is not None]
    return min(found, default=None)
