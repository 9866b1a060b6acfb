"""The model of the benchmarks: a row of text that a method adds, as in any feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast.core import journal
from standfast.core.receipts import Receipt
from standfast.db.contract import Tx
from standfast.db.sql import Statement, statement
from standfast.db.store import Resource, transactional

if TYPE_CHECKING:
    from standfast import Standfast

CREATE = Statement(
    "create",
    "CREATE TABLE IF NOT EXISTS bench_row (n INTEGER PRIMARY KEY, body TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bench_row (n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body TEXT NOT NULL)",
)
ADD = statement("INSERT INTO bench_row (body) VALUES (:body)", name="add")


class Rows(Resource):
    __slots__ = ()

    @transactional
    def add(self, tx: Tx, id: str, body: str) -> Receipt:
        tx.run(ADD, body=body)
        return journal.append(tx, "row.added", id)


def create(store: Standfast) -> None:
    """Creates the table, once for all processes."""
    store._store.write(lambda tx: tx.run(CREATE))
