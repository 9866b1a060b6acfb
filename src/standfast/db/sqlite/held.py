"""A transaction in a caller's hands: `with sf.transaction()`, and the clock that ends it.

It holds the lead and the lock between processes, so every other writer waits. Past its limit
it is rolled back by a timer, whatever its owner is doing, and the others go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import apsw

from standfast import crash
from standfast.db.contract import DEADLINE_S, TRANSACTION_MAX_S, Caller, Numbered, Row, Tx
from standfast.db.sqlite import library
from standfast.db.sqlite.lock import busy
from standfast.db.sqlite.queue import Entry
from standfast.db.sqlite.signals import HeldBack
from standfast.db.sqlite.tx import SqliteTx
from standfast.errors import StorageError

if TYPE_CHECKING:
    from standfast.db.sql import Statement
    from standfast.db.sqlite.engine import SqliteEngine


class Held:
    """The transaction of a `with sf.transaction()` block, and the clock that ends it."""

    def __init__(self, engine: SqliteEngine, caller: Caller) -> None:
        self._engine = engine
        self._entry = Entry([])
        self._caller = caller
        self._locked = False
        self._over = False
        self._mutex = threading.RLock()
        self._timer = threading.Timer(TRANSACTION_MAX_S, self.abandon)
        self._timer.daemon = True

    def begin(self, signals: HeldBack) -> Tx:
        engine = self._engine
        engine.queue.enter(self._entry, signals)
        if engine.dead is not None:
            raise engine.dead
        end = self._entry.deadline()
        engine.lock.acquire(end - time.monotonic(), signals)
        self._locked = True
        while True:
            try:
                engine.begin()
                break
            except library.RETRYABLE as error:
                if time.monotonic() > end:
                    raise busy(engine.path + ".lock", DEADLINE_S) from error
                signals.let_through()
                library.pause(0.05)
            except apsw.Error as error:
                raise engine.translated(error) from error
        self._timer.start()
        return HeldTx(engine.cursor, self._caller, self)

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Around each statement, so that the clock never ends the transaction in the middle of one."""
        with self._mutex:
            self._still_open()
            try:
                yield
            except apsw.Error as error:
                raise self._engine.translated(error) from error

    def _still_open(self) -> None:
        if self._over:
            raise StorageError(
                f"this transaction was open for more than {TRANSACTION_MAX_S:.0f} s and was rolled back",
                "keep slow work outside: every other writer waits for the block to end",
                code="transaction_too_long",
            )

    def commit(self) -> None:
        with self._mutex:
            self._still_open()
            try:
                self._engine.finish()
            except apsw.Error as error:
                raise self._engine.translated(error) from error
            self._end(settling=True)
        crash.point("commit.after_commit")
        self._engine.settle()
        crash.point("commit.after_sync")

    def abandon(self) -> None:
        """Roll back and let the others go on: an exception, or the timer."""
        with self._mutex:
            if self._over or not self._entry.leads:
                return
            if self._locked:
                self._engine.rollback()
            self._end(settling=False)

    def _end(self, *, settling: bool) -> None:
        self._over = True
        self._timer.cancel()
        if self._locked:
            self._engine.lock.release()
        self._engine.queue.hand_over(settling=settling)


class HeldTx(SqliteTx):
    """The same statements, each under the watch of the block's clock."""

    __slots__ = ("_held",)

    def __init__(self, cursor: apsw.Cursor, caller: Caller, held: Held) -> None:
        super().__init__(cursor, caller)
        self._held = held

    def maybe(self, statement: Statement, /, **params: object) -> Row | None:
        with self._held.statement():
            return super().maybe(statement, **params)

    def all(self, statement: Statement, /, **params: object) -> list[Row]:
        with self._held.statement():
            return super().all(statement, **params)

    def run(self, statement: Statement, /, **params: object) -> None:
        with self._held.statement():
            super().run(statement, **params)

    def many(self, statement: Statement, rows: Iterable[Row]) -> None:
        with self._held.statement():
            super().many(statement, rows)

    def insert(self, statement: Statement, row: Numbered, values: tuple[object, ...]) -> None:
        with self._held.statement():
            super().insert(statement, row, values)
