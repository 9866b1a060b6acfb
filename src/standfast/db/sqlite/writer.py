"""The writer thread: the only thread that uses the connection, the lock between processes and the WAL.

    callers ──▶ deque ──▶ writer thread: file lock ▸ take operations ▸ BEGIN … COMMIT ▸ unlock ▸ fsync ▸ answer

A caller appends an operation and waits on that operation's lock. It shares nothing else, so an exception that hits it
at any bytecode (a signal handler, an asynchronous exception, Ctrl-C) cannot affect another caller.

The thread takes the file lock first and operations second. An operation that is still in the deque can be withdrawn
with one `deque.remove`: by a deadline, by Ctrl-C, by an exception, by a cancelled task. `deque.popleft` and
`deque.remove` are atomic, so an operation is either withdrawn or begun.

No caller changes a flag that another caller reads. Only the thread sets `_asleep` and `_stopped`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from standfast.db.contract import BATCH_MAX, DEADLINE_S
from standfast.db.sqlite.lock import FileLock, busy
from standfast.db.sqlite.operations import Body, Call, Hold, Operation
from standfast.errors import CommitUnknown, StorageError

DELAY_FROM = 16
"""If this many callers shared the last commit, the next commit waits up to DELAY_MAX_S for their next writes."""
DELAY_MAX_S = 0.001
_DELAY_STEP_S = 0.0001
_BEGUN_STEP_S = 0.1
"""How often the caller of a begun operation checks whether the thread put it back."""
_JOIN_S = 1.0
_get_ident = threading.get_ident


class Work(Protocol):
    """The interface through which the writer thread runs operations.

    `GroupCommit` implements it. The thread holds the file lock.
    """

    dead: BaseException | None

    def commit(self, batch: list[Body]) -> None:
        """Commit what can be committed, release the file lock, make it durable and answer."""

    def lend(self, hold: Hold) -> None:
        """Lend the connection to the caller, take it back, commit or roll back, and release the file lock."""

    def failed(self, error: BaseException) -> None:
        """The thread ends because of a defect: set `dead`."""


class Writer:
    """The deque of operations and the thread that serves them."""

    def __init__(self, work: Work, lock: FileLock) -> None:
        self._work = work
        self._lock = lock
        self._waiting: deque[Operation] = deque()
        self._claim = threading.Lock()
        """The serving thread takes this lock and never releases it. A second thread ends at once."""
        self._wake = threading.Lock()
        self._wake.acquire()
        self._asleep = self._running = self._stopped = False
        self._shared = 0
        self._thread: threading.Thread | None = None
        self.ident = 0
        """The thread's identity, 0 until it runs."""

    # -- methods of the callers' threads ----------------------------------------------------------------

    def run(self, operation: Operation, timeout_s: float | None = None) -> None:
        """Have the thread serve `operation`. Raises its error, or Busy if it was not begun before the deadline."""
        deadline_s = DEADLINE_S if timeout_s is None else timeout_s
        try:
            self.put(operation)
            if not operation.wait(deadline_s):
                self._await_begun(operation, deadline_s)
        except BaseException:
            self._leave(operation)
            raise
        if operation.error is not None:
            raise operation.error

    def wait_end(self, hold: Hold) -> None:
        """Wait until the thread has ended a transaction that this caller gave back. Raises its error."""
        while not self._answered_soon(hold):
            pass
        if hold.error is not None:
            raise hold.error

    def put(self, operation: Operation) -> None:
        """Append without waiting for the answer."""
        self._waiting.append(operation)
        if not self._running:
            self._start(operation)
        elif self._asleep:
            self._rouse()
        if self._stopped and self.withdraw(operation):
            assert self._work.dead is not None
            raise self._work.dead

    def withdraw(self, operation: Operation) -> bool:
        """Remove an operation from the queue. True if it had not begun; then it never begins."""
        try:
            self._waiting.remove(operation)
        except ValueError:
            return False
        return True

    def join(self) -> None:
        """After `stop`: wait for the thread's end, so that it does not run during a fork or the exit of the process."""
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def waiting(self) -> int:
        """Operations that are not begun."""
        return len(self._waiting)

    def _await_begun(self, operation: Operation, timeout_s: float) -> None:
        """After the deadline: withdraw the operation, or wait for its end if it has begun."""
        while not self.withdraw(operation):
            if self._answered_soon(operation):
                return
        raise busy(self._lock.path, timeout_s)

    def _leave(self, operation: Operation) -> None:
        """After an exception in the caller: withdraw the operation. If it has begun, wait for its end."""
        operation.gone = True
        if self.withdraw(operation):
            return
        if isinstance(operation, Hold):
            operation.give_back(commit=False)
        else:
            while operation.begun and not self._stopped and not operation.wait(_BEGUN_STEP_S):
                pass

    def _answered_soon(self, operation: Operation) -> bool:
        """Wait a moment for the answer. Raises CommitUnknown if the thread ended without one."""
        stopped = self._stopped  # checked first, because the thread answers before it ends
        if operation.wait(_BEGUN_STEP_S):
            return True
        if stopped:
            raise CommitUnknown("the writer thread ended before it answered", "look the write up by its key")
        return False

    def _start(self, operation: Operation) -> None:
        try:
            threading.Thread(target=self._main, name="standfast-writer", daemon=True).start()
        except RuntimeError as error:  # the interpreter is shutting down, or the system has no more threads
            if not self.withdraw(operation):
                return
            if not isinstance(operation, Call):
                raise StorageError(
                    f"the writer thread cannot be started: {error}", "raise the limit of threads: ulimit -u"
                ) from error
            operation.run()
            operation.answer()

    def _rouse(self) -> None:
        with suppress(RuntimeError):  # another caller released it already
            self._wake.release()

    # -- the thread -------------------------------------------------------------------------------------

    def stop(self) -> None:
        """In the thread: serve no more operations."""
        self._stopped = True

    def put_back(self, operations: Sequence[Operation]) -> None:
        """In the thread: put back operations that were taken and not served, so that callers can withdraw them."""
        for operation in reversed(operations):
            operation.begun = False
            self._waiting.appendleft(operation)

    def _main(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        self._thread = threading.current_thread()
        self.ident = _get_ident()
        self._running = True
        try:
            while not self._stopped:
                if not self._waiting:
                    self._sleep()
                else:
                    self._serve()
        except BaseException as error:  # noqa: BLE001  # a defect: every caller must get an answer
            self._work.failed(error)
        finally:
            self._stopped = True
            self._refuse_rest()

    def _sleep(self) -> None:
        self._asleep = True
        if not self._waiting:  # checked after the flag, so that a caller that appended earlier is not missed
            self._wake.acquire()
        self._asleep = False

    def _next(self) -> Operation | None:
        """The next operation whose caller still waits for it."""
        while True:
            try:
                operation = self._waiting.popleft()
            except IndexError:
                return None
            if not operation.gone:
                operation.begun = True
                return operation

    def _serve(self) -> None:
        try:
            first = self._waiting[0]
        except IndexError:
            return  # the caller withdrew the operation
        if isinstance(first, Call):
            self._serve_call()
        else:
            self._await_sharers()
            self._lock.wait()
            self._serve_locked()

    def _serve_call(self) -> None:
        operation = self._next()
        if isinstance(operation, Call):
            operation.run()
            operation.answer()
        elif operation is not None:  # the call was withdrawn meanwhile
            self.put_back([operation])

    def _serve_locked(self) -> None:
        """Take operations and serve them. The thread holds the file lock; `commit` and `lend` release it."""
        batch: list[Body] = []
        while isinstance(operation := self._next(), Body):
            batch.append(operation)
            if len(batch) == BATCH_MAX:
                operation = None
                break
        if batch:
            if operation is not None:
                self.put_back([operation])
            self._shared = len(batch)
            self._work.commit(batch)
        elif isinstance(operation, Hold):
            self._work.lend(operation)
        else:
            self._lock.release()
            if operation is not None:
                self.put_back([operation])

    def _await_sharers(self) -> None:
        """The commit delay: most callers that shared the last commit write again immediately, so wait for them."""
        if self._shared < DELAY_FROM or len(self._waiting) >= self._shared:
            return
        end = time.monotonic() + DELAY_MAX_S
        while len(self._waiting) < self._shared and time.monotonic() < end:
            time.sleep(_DELAY_STEP_S)

    def _refuse_rest(self) -> None:
        while (operation := self._next()) is not None:
            operation.error = self._work.dead
            operation.answer()
