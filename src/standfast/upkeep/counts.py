"""How much is in the store, as far as that can be told quickly."""

from __future__ import annotations

import re

from standfast.db.contract import Tx
from standfast.db.migrations import MIGRATIONS
from standfast.db.sql import statement

COUNT_MAX = 100_000
"""Rows counted at most per table: a status must not read a store of millions to its end."""
_OWN = frozenset(("meta", "migration"))


def tables() -> list[str]:
    """Every table the migrations make, in the order they make them."""
    return [name for migration in MIGRATIONS for name in re.findall(r"(?m)^CREATE TABLE (\w+)", migration.text)]


def counts(tx: Tx) -> dict[str, int]:
    """Rows per table, our own book-keeping left out; COUNT_MAX means that many or more."""
    return {table: _count(tx, table) for table in tables() if table not in _OWN}


def _count(tx: Tx, table: str) -> int:
    text = f"SELECT count(*) AS n FROM (SELECT 1 FROM {table} LIMIT {COUNT_MAX}) AS rows_there"
    return int(tx.one(statement(text))["n"])
