"""A transaction on one apsw connection, as a verb's body sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from standfast.db.contract import Caller, Row, Tx

if TYPE_CHECKING:
    import apsw

    from standfast.db.sql import Statement


class SqliteTx(Tx):
    __slots__ = ("_connection",)

    dialect = "sqlite"

    def __init__(self, connection: apsw.Connection, caller: Caller) -> None:
        self.caller = caller
        self._now_us = None
        self.after = None
        self._connection = connection

    def maybe(self, statement: Statement, /, **params: object) -> Row | None:
        cursor = self._connection.execute(statement.sqlite, statement.bind(params))
        if statement.columns is not None:
            rows = cursor.fetchall()
            return dict(zip(statement.columns, rows[0], strict=True)) if rows else None
        first = cursor.fetchone()
        if first is None:
            return None
        names = _name_columns(statement, cursor)
        # A statement with RETURNING has done its work only when it was stepped to its end.
        for _ in cursor:
            pass
        return dict(zip(names, first, strict=True))

    def all(self, statement: Statement, /, **params: object) -> list[Row]:
        cursor = self._connection.execute(statement.sqlite, statement.bind(params))
        rows = []
        for row in cursor:
            names = statement.columns or _name_columns(statement, cursor)
            rows.append(dict(zip(names, row, strict=True)))
        return rows

    def run(self, statement: Statement, /, **params: object) -> None:
        self._connection.execute(statement.sqlite, statement.bind(params)).fetchall()

    def many(self, statement: Statement, rows: Iterable[Row]) -> None:
        self._connection.executemany(statement.sqlite, map(statement.bind, rows)).fetchall()

    def defer(self, statement: Statement, then: Callable[[Row], None], /, **params: object) -> None:
        then(self.one(statement, **params))

    def insert(self, statement: Statement, then: Callable[[int], None], /, **params: object) -> None:
        self._connection.execute(statement.sqlite, statement.bind(params))
        then(self._connection.last_insert_rowid())

    def now_us(self) -> int:
        if self._now_us is None:
            self._now_us = self.caller.clock.now_us()
        return self._now_us


def _name_columns(statement: Statement, cursor: apsw.Cursor) -> tuple[str, ...]:
    statement.columns = tuple(column[0] for column in cursor.get_description())
    return statement.columns
