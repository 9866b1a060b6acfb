"""A transaction on one apsw connection, as a method's body sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from standfast.db.contract import Caller, Numbered, Row, Tx
from standfast.db.sqlite import forks
from standfast.errors import Corrupt, InvalidInput, StandfastError

if TYPE_CHECKING:
    import apsw

    from standfast.db.sql import Statement


class SqliteTx(Tx):
    __slots__ = ("_cursor", "_forks", "newest")

    dialect = "sqlite"

    def __init__(self, cursor: apsw.Cursor, caller: Caller) -> None:
        """One cursor runs all statements: each is stepped to its end before the next one begins."""
        self.caller = caller
        self._now_us = None
        self.after = None
        self._cursor = cursor
        self._forks = forks.count()
        self.newest: tuple[int, int, Numbered] | None = None
        """Sequence number and time of the last journal row that was inserted here."""

    def _own(self) -> None:
        """Refuse a transaction that a forked child inherited."""
        if self._forks != forks.count():
            raise forks.refused()

    def maybe(self, statement: Statement, /, **params: object) -> Row | None:
        self._own()
        try:
            cursor = self._cursor.execute(statement.sqlite, statement.bind(params))
            if statement.columns is not None:
                rows = cursor.fetchall()
                return dict(zip(statement.columns, rows[0], strict=True)) if rows else None
            first = cursor.fetchone()
            if first is None:
                return None
            names = _name_columns(statement, cursor)
            # A statement with RETURNING is complete only after its last step.
            for _ in cursor:
                pass
            return dict(zip(names, first, strict=True))
        except UNFIT as error:
            raise refused(params, error) from None

    def all(self, statement: Statement, /, **params: object) -> list[Row]:
        self._own()
        try:
            cursor = self._cursor.execute(statement.sqlite, statement.bind(params))
            rows = []
            for row in cursor:
                names = statement.columns or _name_columns(statement, cursor)
                rows.append(dict(zip(names, row, strict=True)))
            return rows
        except UNFIT as error:
            raise refused(params, error) from None

    def run(self, statement: Statement, /, **params: object) -> None:
        self._own()
        try:
            self._cursor.execute(statement.sqlite, statement.bind(params)).fetchall()
        except UNFIT as error:
            raise refused(params, error) from None

    def many(self, statement: Statement, rows: Iterable[Row]) -> None:
        self._own()
        # A cursor of its own: the consumer of the rows may use `tx` too.
        self._cursor.connection.executemany(statement.sqlite, map(statement.bind, rows)).fetchall()

    def defer(self, statement: Statement, then: Callable[[Row], None], /, **params: object) -> None:
        then(self.one(statement, **params))

    def insert(self, statement: Statement, row: Numbered, values: tuple[object, ...]) -> None:
        self._own()
        try:
            self._cursor.execute(statement.sqlite, values)
        except UNFIT as error:
            raise refused(dict(zip(statement.names, values, strict=True)), error) from None
        row.seq = seq = self._cursor.connection.last_insert_rowid()
        self.newest = (seq, self.now_us(), row)

    def compares_vectors(self) -> bool:
        from standfast.db.sqlite import vectors

        return vectors.loaded(self._cursor.connection)

    def now_us(self) -> int:
        if self._now_us is None:
            self._now_us = self.caller.clock.now_us()
        return self._now_us


UNFIT = (UnicodeError, OverflowError)


def refused(params: Mapping[str, object], error: Exception) -> StandfastError:
    """The error for a parameter that SQLite refused, or a stored value that it could not read."""
    if isinstance(error, UnicodeDecodeError):
        return Corrupt("a text in the store is damaged: its bytes are not UTF-8", "standfast doctor")
    for name, value in params.items():
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return InvalidInput(f"{name} holds a lone surrogate, which is not Unicode text")
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            return InvalidInput(f"{name} is {value}: whole numbers have at most 64 bits")
    return InvalidInput("a store cannot hold a value of this type")


def _name_columns(statement: Statement, cursor: apsw.Cursor) -> tuple[str, ...]:
    statement.columns = tuple(column[0] for column in cursor.get_description())
    return statement.columns
