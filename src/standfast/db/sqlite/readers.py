"""Readers: a few connections that cannot write, each lent to one caller at a time.

A read sees one snapshot and never waits for a writer. But a snapshot pins the log: while it is open, the WAL grows and
every write costs more. So a progress handler ends each read that is too old, and a connection is lent for one body
only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar
from weakref import WeakSet

import apsw

from standfast.db.contract import READ_MAX_S, Caller, Row, Tx
from standfast.db.sqlite import library
from standfast.db.sqlite.tx import UNFIT, SqliteTx, refused
from standfast.errors import InvalidInput, StandfastError

T = TypeVar("T")

KEPT_MAX = 8
"""Connections that stay open between reads. More are opened when more threads read at the same time."""
_STEPS_BETWEEN_CHECKS = 50_000


class Closed(Exception):
    """The engine was closed before this read could begin."""


class Loan:
    """A connection in use. If an interrupted thread loses its loan, Python collects the loan as garbage, and it does
    not count."""

    __slots__ = ("__weakref__",)


class Readers:
    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._mutex = threading.Lock()
        self._idle: list[_Reader] = []
        self._lent: WeakSet[Loan] = WeakSet()
        self._closed = False
        self._returned = threading.Condition(self._mutex)

    def read(self, body: Callable[[Tx], T], caller: Caller) -> T:
        loan = self.lend()
        try:
            reader = self._take()
            try:
                return reader.run(body, caller)
            finally:
                self._keep(reader)
        finally:
            self.give_back(loan)

    def _take(self) -> _Reader:
        # No `return` of a call inside the block: an exception right after that call would keep the lock.
        with self._mutex:
            reader = self._idle.pop() if self._idle else None
        return reader or _Reader(self._connect())

    def _keep(self, reader: _Reader) -> None:
        # An interrupted read may have left its snapshot open: do not reuse that connection.
        usable = not reader.connection.in_transaction
        with self._mutex:
            keep = usable and not self._closed and len(self._idle) < KEPT_MAX
            if keep:
                self._idle.append(reader)
        if not keep:
            reader.connection.close()

    def lend(self) -> Loan:
        """Count one more connection in use. Streams and the care thread count too."""
        with self._mutex:
            if self._closed:
                raise Closed
            loan = Loan()
            self._lent.add(loan)
            return loan

    def give_back(self, loan: Loan) -> None:
        with self._mutex:
            self._lent.discard(loan)
            self._returned.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Close every reader. False, with nothing closed, if one is still in use after `timeout_s`."""
        with self._mutex:
            self._closed = True
            if not self._returned.wait_for(lambda: not self._lent, timeout_s):
                self._closed = False
                return False
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.connection.close()
        return True


class _Reader:
    """One connection with its age limit."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._cursor = connection.cursor()
        self._end = 0.0
        connection.execute("PRAGMA query_only=1").fetchall()
        connection.set_progress_handler(self._too_old, _STEPS_BETWEEN_CHECKS)

    def _too_old(self) -> bool:
        return time.monotonic() > self._end

    def run(self, body: Callable[[Tx], T], caller: Caller) -> T:
        self._end = time.monotonic() + READ_MAX_S
        try:
            self._cursor.execute("BEGIN")
            return body(SqliteTx(self._cursor, caller))
        finally:
            if self.connection.in_transaction:
                self._end = float("inf")
                self._cursor.execute("ROLLBACK")


_READING = frozenset(
    (apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_RECURSIVE, apsw.SQLITE_FUNCTION, apsw.SQLITE_PRAGMA)
)
_PRAGMAS = frozenset(
    ["table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list", "compile_options"]
)


def reads_only(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Whether an action of a person's query is allowed. SQLite calls it while it prepares the query."""
    reading = action in _READING and (action != apsw.SQLITE_PRAGMA or first in _PRAGMAS)
    return apsw.SQLITE_OK if reading else apsw.SQLITE_DENY


def stream(
    connection: apsw.Connection, text: str, params: dict[str, object] | None, give_back: Callable[[], None]
) -> Iterator[Row]:
    """Stream the rows of a person's query. A statement that does more than read is refused."""
    try:
        connection.execute("PRAGMA query_only=1").fetchall()
        connection.authorizer = reads_only
        cursor = connection.execute(text, params or {})
        for row in cursor:
            names = [column[0] for column in cursor.get_description()]
            yield dict(zip(names, row, strict=True))
    except apsw.AuthError as error:
        raise InvalidInput("this statement does more than read", "only SELECT is run here") from error
    except (apsw.SQLError, apsw.BindingsError) as error:
        raise InvalidInput(f"the query is refused: {error}", "tables: standfast sql 'PRAGMA table_list'") from error
    except UNFIT as error:
        raise refused(params or {}, error) from None
    except apsw.Error as error:
        if isinstance(error, StandfastError):
            raise
        raise library.translated(error, connection.filename) from error
    finally:
        connection.close()
        give_back()
