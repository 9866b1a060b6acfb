"""The noun of the benchmarks: a row of text, added by a verb as any feature would add one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast.db.contract import Tx
from standfast.db.sql import Statement, statement
from standfast.db.store import Room, verb
from standfast.footings import journal
from standfast.footings.journal import Receipt

if TYPE_CHECKING:
    from standfast import Standfast

CREATE = Statement(
    "create",
    "CREATE TABLE IF NOT EXISTS bench_row (n INTEGER PRIMARY KEY, body TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bench_row (n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body TEXT NOT NULL)",
)
ADD = statement("INSERT INTO bench_row (body) VALUES (:body)", name="add")


class Rows(Room):
    __slots__ = ()

    @verb
    def add(self, tx: Tx, id: str, body: str) -> Receipt:
        tx.run(ADD, body=body)
        return journal.append(tx, "row.added", id)


def create(store: Standfast) -> None:
    """The table, once for all processes that come."""
    store._store.write(lambda tx: tx.run(CREATE))
