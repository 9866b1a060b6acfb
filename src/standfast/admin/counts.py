"""The number of rows in the store, counted by quick queries up to a limit."""

from __future__ import annotations

from standfast.db import catalogue
from standfast.db.contract import Tx
from standfast.db.sql import statement

COUNT_MAX = 100_000
"""Rows counted at most per table: a status must not read a store of millions to its end."""
STATES = ("session", "effect", "approval", "task", "loop", "run", "webhook_event")
"""Tables whose rows are counted by state."""
_OWN = frozenset(("meta", "migration"))


def counts(tx: Tx) -> dict[str, int]:
    """Rows per table, without our internal tables. COUNT_MAX means COUNT_MAX rows or more."""
    return {table: _count(tx, table) for table in catalogue.tables() if table not in _OWN}


def _count(tx: Tx, table: str) -> int:
    text = f"SELECT count(*) AS n FROM (SELECT 1 FROM {table} LIMIT {COUNT_MAX}) AS rows_there"
    return int(tx.one(statement(text))["n"])


def states(tx: Tx) -> dict[str, dict[str, int]]:
    """Rows by state, of the tables that have rows; at most COUNT_MAX rows of each table are counted."""
    return {table: found for table in STATES if (found := _by_state(tx, table))}


def _by_state(tx: Tx, table: str) -> dict[str, int]:
    rows = f"SELECT state FROM {table} LIMIT {COUNT_MAX}"
    found = tx.all(statement(f"SELECT state, count(*) AS n FROM ({rows}) AS counted GROUP BY state ORDER BY state"))
    return {str(row["state"]): int(row["n"]) for row in found}
