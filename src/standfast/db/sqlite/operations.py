"""The operations of the writer thread: a body, a call, or a transaction to hold.

An operation carries a request to the thread and the answer back. The caller waits on a lock of the
operation's own, so an exception in one caller touches no other caller's operation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import apsw

from standfast.db.contract import TRANSACTION_MAX_S, Caller, Done, Numbered, Row
from standfast.db.sqlite import forks
from standfast.db.sqlite.tx import SqliteTx
from standfast.errors import StandfastError, StorageError

if TYPE_CHECKING:
    from standfast.db.contract import Tx
    from standfast.db.sql import Statement


class Operation:
    """One request to the writer thread. The thread sets `result` or `error`, then answers."""

    __slots__ = ("_answered", "begun", "error", "gone", "result")

    def __init__(self) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.begun = False
        """Set by the thread while it serves this operation. It cannot be withdrawn meanwhile."""
        self.gone = False
        """Set by the caller that no longer needs this operation."""
        self._answered = answered = threading.Lock()
        answered.acquire()

    def answer(self) -> None:
        """In the writer thread: wake the caller."""
        self.begun = False
        with suppress(RuntimeError):  # a caller that was interrupted has not read its answer
            self._answered.release()

    def wait(self, timeout_s: float) -> bool:
        """In the caller's thread: True once it is answered."""
        return self._answered.acquire(timeout=max(timeout_s, 0.0))


class Body(Operation):
    """A function of a transaction."""

    __slots__ = ("caller", "done", "durable", "function", "newest")

    def __init__(
        self,
        function: Callable[[Tx], Any],
        caller: Caller,
        *,
        durable: bool,
        done: Done[Any] | None = None,
    ) -> None:
        super().__init__()
        self.function = function
        self.caller = caller
        self.durable = durable
        self.done = done
        """Called with the answer, if no thread waits for it (event loops)."""
        self.newest: tuple[int, int, Numbered] | None = None
        """The last journal row that it inserted."""

    def run(self, cursor: apsw.Cursor) -> None:
        """If the function raises a refusal before it writes, the refusal is its result, and nothing is rolled back."""
        tx, before = SqliteTx(cursor, self.caller), cursor.connection.total_changes()
        try:
            self.result = self.function(tx)
        except StandfastError as refusal:
            if isinstance(refusal, StorageError) or cursor.connection.total_changes() != before:
                raise
            self.result = refusal
        self.newest = tx.newest

    def answer(self) -> None:
        super().answer()
        if self.done is not None:
            with suppress(Exception):  # an error of a callback must not stop the writer thread
                self.done(self.result if self.error is None else None, self.error)


class Call(Operation):
    """A function that needs the files and no transaction: fsync, close."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self.function = function

    def run(self) -> None:
        try:
            self.result = self.function()
        except BaseException as error:  # noqa: BLE001  # it belongs to the caller
            self.error = error


class Hold(Operation):
    """A transaction that a caller holds open: `with sf.transaction()`.

    The writer thread lends a cursor and waits until the caller gives it back or TRANSACTION_MAX_S has passed. Only the
    thread begins, commits and rolls back. The caller gets two answers: when the cursor is lent, and when the
    transaction has ended.
    """

    __slots__ = (
        "_asked",
        "_called",
        "_forks",
        "_mutex",
        "_translated",
        "caller",
        "commits",
        "cursor",
        "expired",
        "over",
    )

    def __init__(self, caller: Caller, translated: Callable[[BaseException], BaseException]) -> None:
        super().__init__()
        self.caller = caller
        self.cursor: apsw.Cursor | None = None
        self.commits = False
        self.over = self.expired = False
        self._translated = translated
        self._forks = forks.count()
        self._mutex = threading.RLock()
        self._asked: Call | None = None
        self._called = called = threading.Lock()
        called.acquire()

    # -- methods of the caller's thread -------------------------------------------------------------

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Enclose each statement, so that the writer thread never ends the transaction while a statement runs."""
        self.refuse_in_child()
        with self._mutex:
            self._refuse_ended()
            try:
                yield
            except apsw.Error as error:
                self._refuse_ended()
                raise self._translated(error) from error

    def give_back(self, *, commit: bool) -> None:
        """Give the thread the outcome: commit or roll back."""
        self.commits, self._asked = commit, None
        self._call_thread()

    def ask(self, call: Call) -> None:
        """Have the thread run `call` while this caller holds the transaction."""
        self._asked = call
        self._call_thread()
        if not call.wait(TRANSACTION_MAX_S):
            raise too_long()
        if call.error is not None:
            raise call.error

    def _call_thread(self) -> None:
        with suppress(RuntimeError):  # a wake-up is pending: a second call is not needed
            self._called.release()

    def refuse_in_child(self) -> None:
        """The transaction belongs to the parent: SQLite is not called in a forked child."""
        if self._forks != forks.count():
            raise forks.refused()

    @property
    def inherited(self) -> bool:
        return self._forks != forks.count()

    def _refuse_ended(self) -> None:
        if self.over or self.expired:
            raise too_long()

    # -- methods of the writer thread ---------------------------------------------------------------

    def lend(self, cursor: apsw.Cursor) -> None:
        self.cursor = cursor
        self.result = HeldTx(cursor, self.caller, self)
        self.answer()

    def take_back(self) -> None:
        """Wait at most TRANSACTION_MAX_S for the caller to commit or roll back. Afterwards no statement runs."""
        assert self.cursor is not None
        self._await_decision()
        if not self._mutex.acquire(blocking=False):
            self.cursor.connection.interrupt()  # a statement that runs past the limit
            self._mutex.acquire()
        self.over = True
        self._mutex.release()
        self.cursor.close(True)

    def _await_decision(self) -> None:
        end = time.monotonic() + TRANSACTION_MAX_S
        while self._called.acquire(timeout=max(end - time.monotonic(), 0.0)):
            call, self._asked = self._asked, None
            if call is None:
                return
            call.run()
            call.answer()
        self.commits, self.expired = False, True
        self.error = too_long()


def too_long() -> StorageError:
    return StorageError(
        f"this transaction was open for more than {TRANSACTION_MAX_S:.0f} s and was rolled back",
        "keep slow work outside: every other writer waits for the block to end",
        code="transaction_too_long",
    )


class HeldTx(SqliteTx):
    """The methods of `Tx` for a held transaction. They refuse each statement after the hold has ended."""

    __slots__ = ("_hold",)

    def __init__(self, cursor: apsw.Cursor, caller: Caller, hold: Hold) -> None:
        super().__init__(cursor, caller)
        self._hold = hold

    def maybe(self, statement: Statement, /, **params: object) -> Row | None:
        with self._hold.statement():
            return super().maybe(statement, **params)

    def all(self, statement: Statement, /, **params: object) -> list[Row]:
        with self._hold.statement():
            return super().all(statement, **params)

    def run(self, statement: Statement, /, **params: object) -> None:
        with self._hold.statement():
            super().run(statement, **params)

    def many(self, statement: Statement, rows: Iterable[Row]) -> None:
        with self._hold.statement():
            super().many(statement, rows)

    def insert(self, statement: Statement, row: Numbered, values: tuple[object, ...]) -> None:
        with self._hold.statement():
            super().insert(statement, row, values)
